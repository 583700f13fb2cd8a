// The kernels' own headers, compiled once more per instruction set, to call what is inside them. Where a
// signature in src/kernels changes, this is the file that follows.

#include "kernels/interface.hpp"
#include "kernels/narrow.hpp"
#include "kernels/scores.hpp"
#include "kernels/simd.hpp"
#include "kernels/softmax.hpp"
#include "kernels/tiles.hpp"
#include "kernels/values.hpp"
#include "part_table.hpp"

namespace tilewise::kernels::TILEWISE_ISA {
namespace {

using parts::tile_memory;

constexpr std::int64_t panel_rows = static_cast<std::int64_t>(max_row_vectors) * lanes;

std::int64_t stride(std::int64_t dim) { return tile_stride(dim); }

row_state state_of(const tile_memory& m) {
    float* const s = m.state;
    return {
        s, s + panel_rows, s + 2 * panel_rows, s + 3 * panel_rows, s + 4 * panel_rows, s + 5 * panel_rows};
}

tile rows_of(const tile_memory& m) { return {m.rows, tile_stride(m.dim)}; }

/// Calls with the number of vectors as a constant.
template <class Call>
void with_vectors(int n, Call call) {
    switch (n) {
        case 1:
            return call.template operator()<1>();
        case 2:
            return call.template operator()<2>();
        default:
            return call.template operator()<3>();
    }
}

void scores(const tile_memory& m, int n) {
    const tile_source none{};
    chunk_prefetcher nothing(none, none, 0, 0, 1);
    with_vectors(n, [&]<int Vectors>() {
        score_tile<Vectors>(m.q, rows_of(m), m.keys, m.dim, m.scores, m.state + 6 * panel_rows, nothing);
    });
}

void softmax(const tile_memory& m, int n) {
    with_vectors(n, [&]<int Vectors>() { softmax_tile<Vectors>(m.scores, m.keys, 0.1F, state_of(m), {}); });
}

void values(const tile_memory& m, int n) {
    const row_state s = state_of(m);
    with_vectors(n, [&]<int Vectors>() {
        value_tile<Vectors>(m.scores, m.rows, tile_stride(m.dim), m.keys, m.dim, s.keep, s.take, m.out);
    });
}

tile_source source_of(const tile_memory& m) {
    tile_source source{};
    source.data = m.stored;
    source.layout.token_stride = m.dim;
    source.layout.element_stride = 1;
    source.layout.type = m.type;
    source.layout.scale_token_stride = 1;
    source.dim = m.dim;
    source.scales = m.scales;
    return source;
}

/// All rows, and the room for some of them that follows `used` floats of the scratch.
stored_rows stored_rows_of(const tile_source& source, const tile_memory& m, std::int64_t used) {
    return rows_at(source, {0, m.keys}, m.keys, m.scratch + used);
}

constexpr std::int64_t weight_floats = static_cast<std::int64_t>(lanes) * contract::chunk_keys;

void narrow_scores(const tile_memory& m, int n) {
    const tile_source source = source_of(m);
    kernels::TILEWISE_ISA::narrow_scores(m.q, stored_rows_of(source, m, weight_floats), n, m.scratch);
}

void narrow_values(const tile_memory& m, int n) {
    const tile_source source = source_of(m);
    const stored_rows rows = stored_rows_of(source, m, weight_floats);
    kernels::TILEWISE_ISA::narrow_values(
        {m.scores, rows, n, round_up(m.dim, max_depth), m.out, m.state, false});
}

void decode(const tile_memory& m) {
    tile_source source = source_of(m);
    source.buffer = m.rows;
    load_tile(source, 0, m.keys);
}

}  // namespace

extern const parts::part_table kernel_parts;
const parts::part_table kernel_parts = {lanes,  narrow_rows,   stride,        scores, softmax,
                                        values, narrow_scores, narrow_values, decode};

}  // namespace tilewise::kernels::TILEWISE_ISA

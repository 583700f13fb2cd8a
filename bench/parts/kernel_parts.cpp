// The kernels' own headers, compiled once more per instruction set and type of numbers, to call what is
// inside them. Where a signature in src/kernels changes, this is the file that follows.

#include <iterator>

#include "kernels/interface.hpp"
#include "kernels/products.hpp"
#include "kernels/scores.hpp"
#include "kernels/simd.hpp"
#include "kernels/softmax.hpp"
#include "kernels/tiles.hpp"
#include "kernels/values.hpp"
#if TILEWISE_NARROW_PANELS
#    include "kernels/narrow.hpp"
#endif
#include "part_table.hpp"

namespace tilewise::kernels::TILEWISE_ISA {
namespace {

using parts::tile_memory;

constexpr std::int64_t panel_rows = static_cast<std::int64_t>(max_row_vectors) * lanes;

/// Fused multiply-adds that the weight of a score costs: one for r, one for f, one for each coefficient.
/// Additions run beside them on some processors, and do not belong to a limit.
constexpr int softmax_operations = 2 + static_cast<int>(std::size(weight_coefficients));

real* numbers(void* memory) { return static_cast<real*>(memory); }

std::int64_t stride(std::int64_t dim) { return tile_stride(dim); }

row_state state_of(const tile_memory& m) {
    real* const s = numbers(m.state);
    return {
        s, s + panel_rows, s + 2 * panel_rows, s + 3 * panel_rows, s + 4 * panel_rows, s + 5 * panel_rows};
}

/// Calls with the number of vectors as a constant, of those that a panel can have.
template <class Call>
void with_vectors(int n, Call call) {
    if constexpr (vector_multiple == 2) {
        call.template operator()<2>();
    } else {
        switch (n) {
            case 1:
                return call.template operator()<1>();
            case 2:
                return call.template operator()<2>();
            default:
                return call.template operator()<3>();
        }
    }
}

void scores(const tile_memory& m, int n) {
    const std::int64_t units = unit_count(m.dim);
    const tile rows{numbers(m.rows), tile_stride(units)};
    with_vectors(n, [&]<int Vectors>() {
        score_tile<Vectors>(numbers(m.q), rows, m.keys, units, numbers(m.scores),
                            numbers(m.state) + 6 * panel_rows);
    });
}

void softmax(const tile_memory& m, int n) {
    with_vectors(n, [&]<int Vectors>() {
        softmax_tile<Vectors>(numbers(m.scores), m.keys, 0.1F, state_of(m), {true, false});
    });
}

void values(const tile_memory& m, int n) {
    const row_state s = state_of(m);
    with_vectors(n, [&]<int Vectors>() {
        value_tile<Vectors>(numbers(m.scores), numbers(m.rows), tile_stride(m.dim), unit_count(m.keys), m.dim,
                            s.keep, s.take, numbers(m.out));
    });
}

tile_source source_of(const tile_memory& m) {
    tile_source source{};
    source.data = m.stored;
    source.layout.token_stride = m.token_stride;
    source.layout.element_stride = 1;
    source.layout.type = m.type;
    source.layout.scale_token_stride = 1;
    source.layout.page_stride = m.page_keys * m.token_stride;
    source.page_keys = m.page_keys;
    source.pages = m.pages;
    source.table_stride = 1;
    source.dim = m.dim;
    source.scales = m.scales;
    return source;
}

#if TILEWISE_NARROW_PANELS
/// All rows, and the room for some of them that follows `used` floats of the scratch.
stored_rows stored_rows_of(const tile_source& source, const tile_memory& m, std::int64_t used) {
    return rows_at(source, {0, m.keys}, m.keys, numbers(m.scratch) + used);
}

constexpr std::int64_t weight_floats = static_cast<std::int64_t>(lanes) * contract::chunk_keys;

void narrow_scores(const tile_memory& m, int n) {
    const tile_source source = source_of(m);
    kernels::TILEWISE_ISA::narrow_scores(numbers(m.q), stored_rows_of(source, m, weight_floats), n,
                                         numbers(m.scratch));
}

void narrow_values(const tile_memory& m, int n) {
    const tile_source source = source_of(m);
    const stored_rows rows = stored_rows_of(source, m, weight_floats);
    kernels::TILEWISE_ISA::narrow_values(
        {numbers(m.scores), rows, n, round_up(m.dim, max_depth), numbers(m.out), numbers(m.state), false});
}
#else
constexpr void (*narrow_scores)(const tile_memory&, int) = nullptr;
constexpr void (*narrow_values)(const tile_memory&, int) = nullptr;
#endif

tile_source copied_source_of(const tile_memory& m) {
    tile_source source = source_of(m);
    source.buffer = numbers(m.rows);
    return source;
}

void load_keys(const tile_memory& m) { load_tile(copied_source_of(m), 0, m.keys); }
void load_values(const tile_memory& m) { load_value_tile(copied_source_of(m), 0, m.keys); }

}  // namespace

extern const parts::part_table kernel_parts;
const parts::part_table kernel_parts = {
    lanes,   panel_vectors, vector_multiple, narrow_rows,   softmax_operations, stride,     scores,
    softmax, values,        narrow_scores,   narrow_values, load_keys,          load_values};

}  // namespace tilewise::kernels::TILEWISE_ISA

// Row states in memory (kernels::table): what makes a task's keys come in parts, on several threads or one
// after the other. A state in memory is the same on every instruction set.

#ifndef TILEWISE_SRC_KERNELS_STATES_HPP
#define TILEWISE_SRC_KERNELS_STATES_HPP

#include <cstdint>

#include "../contract.hpp"
#include "chunks.hpp"
#include "interface.hpp"
#include "panel.hpp"
#include "simd.hpp"
#include "softmax.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// The state of a row, in memory: m, l, the largest score, and the sums o.
inline constexpr std::int64_t sums_at = 3;

/// Where the output of row r of a panel is, and how far apart its columns are.
struct panel_row {
    real* first;
    std::int64_t stride;
};
TILEWISE_INLINE panel_row output_row(const shape& s, const panel& p, std::int64_t r) {
    if (p.narrow) { return {p.out + r * round_up(s.value_dim, max_depth), 1}; }
    return {p.out + r, static_cast<std::int64_t>(p.vectors) * lanes};
}

/// From a panel to the states of its rows.
inline void save_states(const shape& s, const panel& p, real* states) {
    for (std::int64_t r = 0; r < p.rows; ++r, states += s.state_floats) {
        states[0] = p.state.maximum[r];
        states[1] = p.state.sum[r];
        states[2] = p.state.largest[r];
        const panel_row out = output_row(s, p, r);
        for (std::int64_t x = 0; x < s.value_dim; ++x) { states[sums_at + x] = out.first[x * out.stride]; }
    }
}

/// And back, into a panel that has been started.
inline void load_states(const shape& s, const panel& p, const real* states) {
    for (std::int64_t r = 0; r < p.rows; ++r, states += s.state_floats) {
        p.state.maximum[r] = states[0];
        p.state.sum[r] = states[1];
        p.state.largest[r] = states[2];
        const panel_row out = output_row(s, p, r);
        for (std::int64_t x = 0; x < s.value_dim; ++x) { out.first[x * out.stride] = states[sums_at + x]; }
    }
}

/// The states of a row that has seen nothing, not even a sink.
inline void clear_states(const shape& s, std::int64_t rows, real* states) {
    for (std::int64_t r = 0; r < rows; ++r, states += s.state_floats) {
        for (std::int64_t i = 0; i < s.state_floats; ++i) { states[i] = 0.0F; }
        states[0] = states[2] = -__builtin_inff();
    }
}
inline void clear_panel(const shape& s, const panel& p) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    for (std::int64_t r = 0; r < width; ++r) {
        p.state.maximum[r] = p.state.largest[r] = -__builtin_inff();
        p.state.sum[r] = 0.0F;
    }
    clear_output(s, p);
}

/// Contract step 4 for one row; `chunk` is the state of one chunk by itself.
inline void fold_row(const shape& s, const real* chunk, real* row) {
    const vec lowest = broadcast(-__builtin_inff());
    const vec before = broadcast(row[0]);
    const vec chunk_maximum = broadcast(chunk[0]);
    const vec after = maximum(before, chunk_maximum);
    const vec base = select(after == lowest, broadcast(0.0F), after);
    const vec keep = fold_factor(before - base);
    const vec take = fold_factor(chunk_maximum - base);
    alignas(64) real first[3][lanes];
    store(first[0], after);
    store(first[1], fma(broadcast(row[1]), keep, broadcast(chunk[1]) * take));
    store(first[2], maximum(broadcast(chunk[2]), broadcast(row[2])));
    for (int i = 0; i < 3; ++i) { row[i] = first[i][0]; }
    std::int64_t x = sums_at;
    for (; x + lanes <= s.state_floats; x += lanes) {
        store_unaligned(row + x, fma(load_unaligned(row + x), keep, load_unaligned(chunk + x) * take));
    }
    for (; x < s.state_floats; ++x) {
        store(first[0], fma(broadcast(row[x]), keep, broadcast(chunk[x]) * take));
        row[x] = first[0][0];
    }
}

inline void fold_states(const shape& s, std::int64_t rows, std::int64_t chunks, const void* chunk_states,
                        void* states) {
    for (std::int64_t n = 0; n < chunks * rows; ++n) {
        fold_row(s, static_cast<const real*>(chunk_states) + n * s.state_floats,
                 static_cast<real*>(states) + n % rows * s.state_floats);
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

// A panel: up to max_row_vectors * lanes query rows side by side in SIMD lanes, their running state, and
// the two transpositions, of Q on the way in and of O on the way out.

#ifndef TILEWISE_SRC_KERNELS_PANEL_HPP
#define TILEWISE_SRC_KERNELS_PANEL_HPP

#include <cstdint>

#include "../contract.hpp"
#include "interface.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "tiles.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

struct panel {
    std::int64_t first_row;  ///< of the task's batch entry and key head
    std::int64_t rows;       ///< that exist; the lanes beyond repeat the last one's visibility
    int vectors;             ///< 1 .. max_row_vectors
    float* q;                ///< [head_dim][vectors * lanes]
    float* out;              ///< [value_dim, padded][vectors * lanes]
    row_state state;
    key_range* visible;  ///< [vectors * lanes]
    panel_range range;
};

/// Query rows to lanes; lanes without a row are 0.
inline void load_queries(const shape& s, const group_in& q, panel& p) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    for (std::int64_t r = 0; r < width; ++r) {
        if (r >= p.rows) {
            for (std::int64_t i = 0; i < s.head_dim; ++i) { p.q[i * width + r] = 0.0F; }
            continue;
        }
        const std::int64_t row = p.first_row + r;
        const float* const from = q.data + row / s.group * q.token_stride + row % s.group * q.head_stride;
        for (std::int64_t i = 0; i < s.head_dim; ++i) { p.q[i * width + r] = from[i * q.element_stride]; }
    }
}

/// The state before the first chunk, and what each row sees.
inline void start_rows(const shape& s, panel& p) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    for (std::int64_t r = 0; r < width; ++r) {
        const std::int64_t row = p.first_row + smaller(r, p.rows - 1);
        p.visible[r] = visible_keys(s, row / s.group);
        p.state.maximum[r] = -__builtin_inff();
        p.state.sum[r] = 0.0F;
    }
    p.range = join(p.visible, width);
    const std::int64_t columns = round_up(s.value_dim, max_depth);
    for (std::int64_t i = 0; i < columns * width; ++i) { p.out[i] = 0.0F; }
}

/// Contract step 5 on the panel's own copy of the output.
inline void divide_rows(const shape& s, panel& p) {
    const vec nan = float_of_bits(int_vec(static_cast<std::int32_t>(contract::canonical_nan_bits)));
    const vec zero = broadcast(0.0F);
    for (int n = 0; n < p.vectors; ++n) {
        const vec sum = load(p.state.sum + n * lanes);
        const mask empty = sum == zero;
        for (std::int64_t x = 0; x < s.value_dim; ++x) {
            float* const place = p.out + (x * p.vectors + n) * lanes;
            const vec quotient = load(place) / sum + zero;
            store(place, select(empty, zero, select(quotient == quotient, quotient, nan)));
        }
        const vec log = (load(p.state.maximum + n * lanes) + log2_of(sum)) * broadcast(contract::ln_2);
        const vec lse = select(empty, broadcast(-__builtin_inff()), select(sum == sum, log, nan));
        store(p.state.keep + n * lanes, lse);
    }
}

/// Lanes to output rows, and lse (which divide_rows left in state.keep) where it is wanted.
inline void store_rows(const shape& s, const task& t, const panel& p) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    for (std::int64_t r = 0; r < p.rows; ++r) {
        const std::int64_t row = p.first_row + r;
        const std::int64_t token = row / s.group;
        const std::int64_t head = row % s.group;
        float* const to = t.out.data + token * t.out.token_stride + head * t.out.head_stride;
        for (std::int64_t x = 0; x < s.value_dim; ++x) {
            to[x * t.out.element_stride] = p.out[x * width + r];
        }
        if (t.lse.data != nullptr) {
            t.lse.data[token * t.lse.token_stride + head * t.lse.head_stride] = p.state.keep[r];
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

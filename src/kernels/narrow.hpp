// The micro-kernels for a panel of a few query rows, as in decoding: keys lie in lanes for the scores, and
// columns of V for the outputs, so that no lane is empty and K and V are read once, at the speed of memory.
//
// Each score and each output is the same chain of operations as in scores.hpp and values.hpp: the same bits.

#ifndef TILEWISE_SRC_KERNELS_NARROW_HPP
#define TILEWISE_SRC_KERNELS_NARROW_HPP

#include <cstdint>

#include "../contract.hpp"
#include "simd.hpp"
#include "tiles.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// K and V are prefetched in the order in which they lie in memory, a little ahead of their use: reading them
/// does not show the processor's own prefetchers what comes next, since transposing takes a few elements of
/// many rows at a time. Into the second-level cache, since requests for the first would leave none for the
/// rows in use; this is half of what decoding gains over no prefetching.
template <int Lines>
TILEWISE_INLINE void prefetch_lines(const float* from) {
#pragma GCC unroll 16
    for (int n = 0; n < Lines; ++n) { __builtin_prefetch(from + n * line_floats, 0, 2); }
}

/// Scores of `Groups` x lanes keys for `Rows` rows. K is transposed in registers, four elements of `lanes`
/// keys at a time; several groups of keys keep the chains of a few rows from waiting for themselves.
template <int Rows, int Groups>
TILEWISE_OUTLINE void score_key_groups(const float* q,  // [head_dim][lanes], the first row here
                                       const float* k,  // [Groups * lanes][stride]
                                       std::int64_t stride, std::int64_t head_dim,
                                       float* scores,       // [Rows][chunk_keys]
                                       const float* ahead)  // what comes next: as many rows
{
    vec sum[Groups][Rows];
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) { sum[g][r] = broadcast(0.0F); }
    }
    std::int64_t i = 0;
    for (; i + 4 <= head_dim; i += 4) {
        prefetch_lines<Groups * lanes / 4>(ahead);
        ahead += Groups * lanes * 4;
        vec quads[Groups][4];
#pragma GCC unroll 8
        for (int g = 0; g < Groups; ++g) {
            const float* const from = k + g * lanes * stride + i;
#pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) { quads[g][n] = load_quads(from + n * stride, 4 * stride); }
            transpose_quads(quads[g]);
        }
#pragma GCC unroll 4
        for (int n = 0; n < 4; ++n) {
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const vec query = broadcast(q[(i + n) * lanes + r]);
#pragma GCC unroll 8
                for (int g = 0; g < Groups; ++g) { sum[g][r] = fma(quads[g][n], query, sum[g][r]); }
            }
        }
    }
    for (; i < head_dim; ++i) {
#pragma GCC unroll 8
        for (int g = 0; g < Groups; ++g) {
            alignas(64) float element[lanes];
            for (int n = 0; n < lanes; ++n) { element[n] = k[(g * lanes + n) * stride + i]; }
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                sum[g][r] = fma(load(element), broadcast(q[i * lanes + r]), sum[g][r]);
            }
        }
    }
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) { store(scores + r * contract::chunk_keys + g * lanes, sum[g][r]); }
    }
}

/// Groups of keys that are scored together.
inline constexpr int key_groups = 2;

template <int Rows>
TILEWISE_INLINE void score_rows(const float* q, const tile& k, std::int64_t keys, std::int64_t head_dim,
                                const float* last, float* scores, const float* after) {
    constexpr int groups = key_groups;
    std::int64_t j = 0;
    for (; j + groups * lanes <= keys; j += groups * lanes) {
        const std::int64_t n = j + groups * lanes;
        const float* const ahead = n < keys ? k.data + n * k.stride : after + (n - keys) * k.stride;
        score_key_groups<Rows, groups>(q, k.data + j * k.stride, k.stride, head_dim, scores + j, ahead);
    }
    for (; j + lanes <= keys; j += lanes) {
        score_key_groups<Rows, 1>(q, k.data + j * k.stride, k.stride, head_dim, scores + j, after);
    }
    if (j < keys) { score_key_groups<Rows, 1>(q, last, tile_stride(head_dim), head_dim, scores + j, after); }
}

/// As many rows as there are, up to `Rows`, of 8, 4, 2 or 1. Returns how many.
template <int Rows>
TILEWISE_INLINE std::int64_t score_some_rows(std::int64_t rows, const float* q, const tile& k,
                                             std::int64_t keys, std::int64_t head_dim, const float* last,
                                             float* scores, const float* after) {
    if constexpr (Rows > 1) {
        if (rows < Rows) {
            return score_some_rows<Rows / 2>(rows, q, k, keys, head_dim, last, scores, after);
        }
    }
    score_rows<Rows>(q, k, keys, head_dim, last, scores, after);
    return Rows;
}

/// The last keys of a tile, fewer than lanes, and the last one once more in place of those that do not exist.
inline void copy_last_keys(const tile& k, std::int64_t keys, std::int64_t head_dim,
                           float* last)  // [lanes][tile_stride(head_dim)]
{
    const std::int64_t first = keys / lanes * lanes;
    for (std::int64_t n = 0; first + n < keys; ++n) {
        __builtin_memcpy(last + n * tile_stride(head_dim), k.data + (first + n) * k.stride,
                         static_cast<std::size_t>(head_dim) * sizeof(float));
    }
    for (std::int64_t n = keys - first; n < lanes; ++n) {
        __builtin_memcpy(last + n * tile_stride(head_dim), k.data + (keys - 1) * k.stride,
                         static_cast<std::size_t>(head_dim) * sizeof(float));
    }
}

/// Scores of all keys of a tile, with one row of scores per query row, then turned into the form that all
/// panels have.
inline void narrow_score_tile(const float* q,  // [head_dim][lanes]
                              const tile& k, std::int64_t keys, std::int64_t head_dim, std::int64_t rows,
                              float* last,        // [lanes][tile_stride(head_dim)], to be used
                              float* row_scores,  // [lanes][chunk_keys], to be used; 0 in rows from `rows` on
                              float* scores,      // [keys][lanes]
                              float* row_maximum,  // [lanes]
                              const float* after) {
    if (keys % lanes != 0 && head_dim > 0) { copy_last_keys(k, keys, head_dim, last); }
    for (std::int64_t r = 0; r < rows;) {
        r += score_some_rows<narrow_key_accumulators / 2>(rows - r, q + r, k, keys, head_dim, last,
                                                          row_scores + r * contract::chunk_keys, after);
    }
    vec largest = broadcast(-__builtin_inff());
    for (std::int64_t j = 0; j < keys; j += 4) {
        vec quads[4];
        for (int n = 0; n < 4; ++n) {
            quads[n] = load_quads(row_scores + n * contract::chunk_keys + j, 4 * contract::chunk_keys);
        }
        transpose_quads(quads);
        for (int n = 0; n < 4; ++n) {
            store(scores + (j + n) * lanes, quads[n]);
            largest = maximum(quads[n], largest);
        }
    }
    store(row_maximum, largest);
}

/// What the sums over the values of a tile are made of, and where they go.
struct value_sums {
    const float* weights;  ///< [keys][lanes]
    tile v;
    std::int64_t keys;
    std::int64_t rows;
    std::int64_t columns;  ///< of V and of out: a multiple of max_depth
    const float* keep;     ///< [rows]
    const float* take;     ///< [rows]
    float* out;            ///< [rows][columns]
    const float* after;    ///< what is read after this tile
};

/// Rows of V that are prefetched ahead of their use.
inline constexpr std::int64_t rows_ahead = 32;

/// Rows `row` .. and vectors of columns from `x` on: the chunk's weighted sums from zero, folded into the
/// output.
template <int Rows, int Columns>
TILEWISE_OUTLINE void sum_row_columns(const value_sums& s, std::int64_t row, std::int64_t x) {
    const float* const weights = s.weights + row;
    const float* const v = s.v.data + x;
    const float* const after = x + Columns * lanes < s.columns ? v + Columns * lanes : s.after;
    vec sum[Rows][Columns];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) { sum[r][n] = broadcast(0.0F); }
    }
    for (std::int64_t j = 0; j < s.keys; ++j) {
        const std::int64_t ahead = j + rows_ahead;
        prefetch_lines<(Columns * lanes + line_floats - 1) / line_floats>(
            ahead < s.keys ? v + ahead * s.v.stride : after + (ahead - s.keys) * s.v.stride);
        vec weight[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) { weight[r] = broadcast(weights[j * lanes + r]); }
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) {
            const vec value = load_unaligned(v + j * s.v.stride + n * lanes);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) { sum[r][n] = fma(value, weight[r], sum[r][n]); }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const vec keep = broadcast(s.keep[row + r]);
        const vec take = broadcast(s.take[row + r]);
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) {
            float* const place = s.out + (row + r) * s.columns + x + n * lanes;
            store(place, fma(load(place), keep, sum[r][n] * take));
        }
    }
}

/// As many rows from `row` on as there are, up to `Rows`. Returns how many.
template <int Rows, int Columns>
TILEWISE_INLINE std::int64_t sum_some_rows(const value_sums& s, std::int64_t row, std::int64_t x) {
    if constexpr (Rows > 1) {
        if (s.rows - row < Rows) { return sum_some_rows<Rows - 1, Columns>(s, row, x); }
    }
    sum_row_columns<Rows, Columns>(s, row, x);
    return Rows;
}

/// The most rows whose sums of so many vectors of columns are in registers, beside a vector of V for each and
/// a weight for each row.
inline constexpr int rows_with(int columns) {
    return columns == 8   ? narrow_value_accumulators / 8
           : columns == 1 ? 4
                          : narrow_value_accumulators / (columns + 1);
}

/// As many vectors of columns from `x` on as there are, up to `Columns`, and no more than leave room for all
/// rows at once, if that can be: each line of V is read once then. Returns the columns done.
template <int Columns>
TILEWISE_INLINE std::int64_t sum_some_columns(const value_sums& s, std::int64_t x) {
    if constexpr (Columns > 1) {
        if (s.columns - x < Columns * lanes || (Columns > 2 && s.rows > rows_with(Columns))) {
            return sum_some_columns<Columns / 2>(s, x);
        }
    }
    for (std::int64_t row = 0; row < s.rows;) {
        row += sum_some_rows<rows_with(Columns), Columns>(s, row, x);
    }
    return Columns * lanes;
}

inline void narrow_value_tile(const value_sums& s) {
    for (std::int64_t x = 0; x < s.columns;) { x += sum_some_columns<8>(s, x); }
}

/// The same for a tile of which some keys are masked and V is not all finite, as in values.hpp.
inline void narrow_value_tile_carefully(const value_sums& s) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
        for (std::int64_t x = 0; x < s.columns; x += lanes) {
            vec sum = broadcast(0.0F);
            for (std::int64_t j = 0; j < s.keys; ++j) {
                const float weight = s.weights[j * lanes + r];
                if (!(weight < 0.0F)) {
                    sum = fma(load_unaligned(s.v.data + j * s.v.stride + x), broadcast(weight), sum);
                }
            }
            float* const place = s.out + r * s.columns + x;
            store(place, fma(load(place), broadcast(s.keep[r]), sum * broadcast(s.take[r])));
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

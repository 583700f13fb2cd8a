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

/// Scores of `Groups` x lanes keys for `Rows` rows. K is transposed in registers, four elements of `lanes`
/// keys at a time; several groups of keys keep the chains of a few rows from waiting for themselves.
template <int Rows, int Groups>
TILEWISE_OUTLINE void score_key_groups(const float* q,  // [head_dim][lanes], the first row here
                                       const float* k,  // [Groups * lanes][stride]
                                       std::int64_t stride, std::int64_t head_dim,
                                       float* scores)  // [Rows][chunk_keys]
{
    vec sum[Groups][Rows];
#pragma GCC unroll 8
    for (int g = 0; g < Groups; ++g) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) { sum[g][r] = broadcast(0.0F); }
    }
    std::int64_t i = 0;
    for (; i + 4 <= head_dim; i += 4) {
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

/// Groups of keys that are scored together for so many rows.
inline constexpr int key_groups(int rows) {
    const int fitting = narrow_key_accumulators / rows;
    return fitting >= 2 ? 2 : 1;
}

template <int Rows>
TILEWISE_INLINE void score_rows(const float* q, const tile& k, std::int64_t keys, std::int64_t head_dim,
                                const float* last, float* scores, chunk_prefetcher& next) {
    constexpr int groups = key_groups(Rows);
    std::int64_t j = 0;
    for (; j + groups * lanes <= keys; j += groups * lanes) {
        score_key_groups<Rows, groups>(q, k.data + j * k.stride, k.stride, head_dim, scores + j);
        next.step();
    }
    for (; groups > 1 && j + lanes <= keys; j += lanes) {
        score_key_groups<Rows, 1>(q, k.data + j * k.stride, k.stride, head_dim, scores + j);
    }
    if (j < keys) { score_key_groups<Rows, 1>(q, last, tile_stride(head_dim), head_dim, scores + j); }
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
                              chunk_prefetcher& next) {
    if (keys % lanes != 0) { copy_last_keys(k, keys, head_dim, last); }
    for (std::int64_t r = 0; r < rows;) {
        const float* const from = q + r;
        float* const to = row_scores + r * contract::chunk_keys;
        const std::int64_t left = smaller(rows - r, narrow_key_accumulators);
        if (left >= 8) {
            score_rows<8>(from, k, keys, head_dim, last, to, next);
            r += 8;
        } else if (left >= 6) {
            score_rows<6>(from, k, keys, head_dim, last, to, next);
            r += 6;
        } else if (left >= 4) {
            score_rows<4>(from, k, keys, head_dim, last, to, next);
            r += 4;
        } else if (left >= 2) {
            score_rows<2>(from, k, keys, head_dim, last, to, next);
            r += 2;
        } else {
            score_rows<1>(from, k, keys, head_dim, last, to, next);
            r += 1;
        }
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

/// The chunk's weighted sums of `Columns` vectors of columns for `Rows` rows from zero, folded into the
/// output.
template <int Rows, int Columns>
TILEWISE_OUTLINE void sum_row_columns(const float* weights,  // [keys][lanes], the first row here
                                      const float* v,        // [keys][stride], the first column here
                                      std::int64_t stride, std::int64_t keys, const float* keep,
                                      const float* take,  // [Rows]
                                      float* out,         // [Rows][out_stride]
                                      std::int64_t out_stride) {
    vec sum[Rows][Columns];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int x = 0; x < Columns; ++x) { sum[r][x] = broadcast(0.0F); }
    }
    for (std::int64_t j = 0; j < keys; ++j) {
        vec weight[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) { weight[r] = broadcast(weights[j * lanes + r]); }
#pragma GCC unroll 8
        for (int x = 0; x < Columns; ++x) {
            const vec value = load_unaligned(v + j * stride + x * lanes);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) { sum[r][x] = fma(value, weight[r], sum[r][x]); }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const vec a = broadcast(keep[r]);
        const vec b = broadcast(take[r]);
#pragma GCC unroll 8
        for (int x = 0; x < Columns; ++x) {
            float* const place = out + r * out_stride + x * lanes;
            store(place, fma(load(place), a, sum[r][x] * b));
        }
    }
}

/// All rows for `Columns` vectors of columns.
template <int Columns>
TILEWISE_INLINE void sum_rows(const float* weights, const float* v, std::int64_t stride, std::int64_t keys,
                              std::int64_t rows, const float* keep, const float* take, float* out,
                              std::int64_t out_stride) {
    constexpr int fitting = narrow_value_accumulators / Columns;
    constexpr int most = fitting > 4 ? 4 : fitting;
    for (std::int64_t r = 0; r < rows;) {
        float* const to = out + r * out_stride;
        if (most >= 4 && rows - r >= 4) {
            sum_row_columns <
                most<4 ? 1 : 4, Columns>(weights + r, v, stride, keys, keep + r, take + r, to, out_stride);
            r += 4;
        } else if (most >= 3 && rows - r >= 3) {
            sum_row_columns <
                most<3 ? 1 : 3, Columns>(weights + r, v, stride, keys, keep + r, take + r, to, out_stride);
            r += 3;
        } else if (most >= 2 && rows - r >= 2) {
            sum_row_columns <
                most<2 ? 1 : 2, Columns>(weights + r, v, stride, keys, keep + r, take + r, to, out_stride);
            r += 2;
        } else {
            sum_row_columns<1, Columns>(weights + r, v, stride, keys, keep + r, take + r, to, out_stride);
            r += 1;
        }
    }
}

/// All columns of a tile; V has columns, and `out` has columns, up to the next multiple of max_depth.
inline void narrow_value_tile(const float* weights, const tile& v, std::int64_t keys, std::int64_t value_dim,
                              std::int64_t rows, const float* keep, const float* take, float* out) {
    const std::int64_t columns = round_up(value_dim, max_depth);
    const bool wide = narrow_value_accumulators >= 24 || rows == 1;
    for (std::int64_t x = 0; x < columns;) {
        const std::int64_t left = (columns - x) / lanes;
        if (left >= 8 && wide) {
            sum_rows<8>(weights, v.data + x, v.stride, keys, rows, keep, take, out + x, columns);
            x += 8 * lanes;
        } else if (left >= 4) {
            sum_rows<4>(weights, v.data + x, v.stride, keys, rows, keep, take, out + x, columns);
            x += 4 * lanes;
        } else if (left >= 2) {
            sum_rows<2>(weights, v.data + x, v.stride, keys, rows, keep, take, out + x, columns);
            x += 2 * lanes;
        } else {
            sum_rows<1>(weights, v.data + x, v.stride, keys, rows, keep, take, out + x, columns);
            x += lanes;
        }
    }
}

/// The same for a tile of which some keys are masked and V is not all finite, as in values.hpp.
inline void narrow_value_tile_carefully(const float* weights, const tile& v, std::int64_t keys,
                                        std::int64_t value_dim, std::int64_t rows, const float* keep,
                                        const float* take, float* out) {
    const std::int64_t columns = round_up(value_dim, max_depth);
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t x = 0; x < columns; x += lanes) {
            vec sum = broadcast(0.0F);
            for (std::int64_t j = 0; j < keys; ++j) {
                const float weight = weights[j * lanes + r];
                if (!(weight < 0.0F)) {
                    sum = fma(load_unaligned(v.data + j * v.stride + x), broadcast(weight), sum);
                }
            }
            float* const place = out + r * columns + x;
            store(place, fma(load(place), broadcast(keep[r]), sum * broadcast(take[r])));
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

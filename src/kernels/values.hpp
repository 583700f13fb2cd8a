// O^T += V^T P for one panel of query rows and one tile of keys (contract steps 3 and 4).
//
// As with the scores, query rows lie in lanes and V is read as it lies in memory.

#ifndef TILEWISE_SRC_KERNELS_VALUES_HPP
#define TILEWISE_SRC_KERNELS_VALUES_HPP

#include <cstdint>

#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// `Depth` columns of V: the chunk's weighted sums from zero, folded into the output so far.
template <int Vectors, int Depth>
TILEWISE_OUTLINE void sum_columns(const real* weights,  // [keys][Vectors * lanes]
                                  const real* v,        // [keys][stride], Depth columns from here
                                  std::int64_t stride, std::int64_t keys, const real* keep,
                                  const real* take,  // [Vectors * lanes]
                                  real* out)         // [Depth][Vectors * lanes]
{
    vec sum[Depth][Vectors];
#pragma GCC unroll 16
    for (int x = 0; x < Depth; ++x) {
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { sum[x][n] = broadcast(0.0F); }
    }
    for (std::int64_t j = 0; j < keys; ++j) {
        vec weight[Vectors];
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { weight[n] = load(weights + (j * Vectors + n) * lanes); }
#pragma GCC unroll 16
        for (int x = 0; x < Depth; ++x) {
            const vec element = broadcast(v[j * stride + x]);
#pragma GCC unroll 3
            for (int n = 0; n < Vectors; ++n) { sum[x][n] = fma(element, weight[n], sum[x][n]); }
        }
    }
#pragma GCC unroll 16
    for (int x = 0; x < Depth; ++x) {
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) {
            real* const place = out + (x * Vectors + n) * lanes;
            store(place, fma(load(place), load(keep + n * lanes), sum[x][n] * load(take + n * lanes)));
        }
    }
}

/// All columns of a tile; V has columns, and `out` has rows, up to the next multiple of max_depth.
template <int Vectors>
void value_tile(const real* weights, const real* v, std::int64_t stride, std::int64_t keys,
                std::int64_t value_dim, const real* keep, const real* take, real* out) {
    constexpr int depth = column_depth[Vectors];
    for (std::int64_t x = 0; x < value_dim; x += depth) {
        sum_columns<Vectors, depth>(weights, v + x, stride, keys, keep, take, out + x * Vectors * lanes);
    }
}

/// The weight that marks a masked key for value_tile_carefully; no weight is negative.
inline constexpr real masked_weight = -1.0F;

/// The same for a tile of which some keys are masked and V is not all finite: a masked key must not meet
/// its V (0 * inf is NaN).
template <int Vectors>
void value_tile_carefully(const real* weights, const real* v, std::int64_t stride, std::int64_t keys,
                          std::int64_t value_dim, const real* keep, const real* take, real* out) {
    for (std::int64_t x = 0; x < value_dim; ++x) {
        for (int n = 0; n < Vectors; ++n) {
            vec sum = broadcast(0.0F);
            for (std::int64_t j = 0; j < keys; ++j) {
                const vec weight = load(weights + (j * Vectors + n) * lanes);
                const vec next = fma(broadcast(v[j * stride + x]), weight, sum);
                sum = select(weight < broadcast(0.0F), sum, next);
            }
            real* const place = out + (x * Vectors + n) * lanes;
            store(place, fma(load(place), load(keep + n * lanes), sum * load(take + n * lanes)));
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

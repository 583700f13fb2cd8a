// O^T += V^T P for one panel of query rows and one tile of keys (contract steps 3 and 4).
//
// As with the scores, query rows lie in lanes and V is read as it lies in memory.

#ifndef TILEWISE_SRC_KERNELS_VALUES_HPP
#define TILEWISE_SRC_KERNELS_VALUES_HPP

#include <cstdint>

#include "products.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// `Depth` columns of V: the chunk's weighted sums from zero, folded into the output so far.
template <int Vectors, int Depth>
TILEWISE_OUTLINE void sum_columns(const real* weights,  // [units][Vectors * lanes]
                                  const real* v,        // [units][stride], Depth columns from here
                                  std::int64_t stride, std::int64_t units, const real* keep,
                                  const real* take,  // [Vectors * lanes]
                                  real* out)         // [Depth][Vectors * lanes]
{
    vec sum[Depth][Vectors];
#pragma GCC unroll 16
    for (int x = 0; x < Depth; ++x) {
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { sum[x][n] = broadcast(0.0F); }
    }
    for (std::int64_t j = 0; j < units; ++j) {
        vec weight[Vectors];
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { weight[n] = load(weights + (j * Vectors + n) * lanes); }
#pragma GCC unroll 16
        for (int x = 0; x < Depth; ++x) {
            const vec element = broadcast(v[j * stride + x]);
#pragma GCC unroll 3
            for (int n = 0; n < Vectors; ++n) { sum[x][n] = multiply_add(element, weight[n], sum[x][n]); }
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

/// All columns of a tile; V has columns, and `out` has rows, up to the next multiple of max_depth. A unit is
/// that of a key, or of a pair of keys.
template <int Vectors>
void value_tile(const real* weights, const real* v, std::int64_t stride, std::int64_t units,
                std::int64_t value_dim, const real* keep, const real* take, real* out) {
    constexpr int depth = column_depth[Vectors];
    for (std::int64_t x = 0; x < value_dim; x += depth) {
        sum_columns<Vectors, depth>(weights, v + x, stride, units, keep, take, out + x * Vectors * lanes);
    }
}

/// The weight that marks a masked key for value_tile_carefully; no weight is negative.
inline constexpr real masked_weight = -1.0F;

#if defined(TILEWISE_BF16_PAIRS)
/// sum + the products of a pair of keys, but for what is masked; with weights that are not packed.
TILEWISE_INLINE vec add_visible(vec values, vec first_weight, vec second_weight, vec sum) {
    const vec zero = broadcast(0.0F);
    const mask first = first_weight < zero;
    const mask second = second_weight < zero;
    const vec seen =
        round_to_pairs(select(first, zero, first_of(values)), select(second, zero, second_of(values)));
    return multiply_add(
        seen, round_to_pairs(select(first, zero, first_weight), select(second, zero, second_weight)), sum);
}

/// Column x of a tile for one vector of rows, whose weights are `row_stride` apart.
TILEWISE_INLINE vec sum_visible(const real* weights, std::int64_t row_stride, const real* v,
                                std::int64_t stride, std::int64_t keys, bool starts_in_pair) {
    const vec masked = broadcast(masked_weight);
    vec sum = broadcast(0.0F);
    for (std::int64_t j = starts_in_pair ? -1 : 0; j < keys; j += 2, v += stride) {
        const vec first = j < 0 ? masked : load(weights + j * row_stride);
        const vec second = j + 1 == keys ? masked : load(weights + (j + 1) * row_stride);
        sum = add_visible(broadcast(*v), first, second, sum);
    }
    return sum;
}
#else
TILEWISE_INLINE vec sum_visible(const real* weights, std::int64_t row_stride, const real* v,
                                std::int64_t stride, std::int64_t keys, bool /*starts_in_pair*/) {
    vec sum = broadcast(0.0F);
    for (std::int64_t j = 0; j < keys; ++j) {
        const vec weight = load(weights + j * row_stride);
        const vec next = fma(broadcast(v[j * stride]), weight, sum);
        sum = select(weight < broadcast(0.0F), sum, next);
    }
    return sum;
}
#endif

/// The same for a tile of which some keys are masked and V is not all finite: a masked key must not meet
/// its V (0 * inf is NaN). There is a weight for each key.
template <int Vectors>
void value_tile_carefully(const real* weights, const real* v, std::int64_t stride, std::int64_t keys,
                          bool starts_in_pair, std::int64_t value_dim, const real* keep, const real* take,
                          real* out) {
    for (std::int64_t x = 0; x < value_dim; ++x) {
        for (int n = 0; n < Vectors; ++n) {
            const vec sum = sum_visible(weights + n * lanes, static_cast<std::int64_t>(Vectors) * lanes,
                                        v + x, stride, keys, starts_in_pair);
            real* const place = out + (x * Vectors + n) * lanes;
            store(place, fma(load(place), load(keep + n * lanes), sum * load(take + n * lanes)));
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

// S^T = K Q^T for one panel of query rows and one tile of keys (contract step 1).
//
// Query rows lie side by side in SIMD lanes, so each lane is the sequential chain of one score, K is read as
// it lies in memory, and nothing is summed across lanes.

#ifndef TILEWISE_SRC_KERNELS_SCORES_HPP
#define TILEWISE_SRC_KERNELS_SCORES_HPP

#include <cstdint>

#include "products.hpp"
#include "simd.hpp"
#include "tiles.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Scores of `Depth` keys, of which the first `keys` exist; the rest repeat the last one, so that nothing
/// is read beyond it. Widens the running maximum by them.
template <int Vectors, int Depth>
TILEWISE_OUTLINE void score_keys(const real* q,  // [units][Vectors * lanes]
                                 const real* k,  // [keys][stride]
                                 std::int64_t stride, std::int64_t keys, std::int64_t units,
                                 real* scores,       // [Depth][Vectors * lanes]
                                 real* row_maximum)  // [Vectors * lanes]
{
    const real* key[Depth];
#pragma GCC unroll 16
    for (int r = 0; r < Depth; ++r) { key[r] = k + (r < keys ? r : keys - 1) * stride; }
    vec sum[Depth][Vectors];
#pragma GCC unroll 16
    for (int r = 0; r < Depth; ++r) {
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { sum[r][n] = broadcast(0.0F); }
    }
    for (std::int64_t i = 0; i < units; ++i) {
        vec query[Vectors];
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { query[n] = load(q + (i * Vectors + n) * lanes); }
#pragma GCC unroll 16
        for (int r = 0; r < Depth; ++r) {
            const vec element = broadcast(key[r][i]);
#pragma GCC unroll 3
            for (int n = 0; n < Vectors; ++n) { sum[r][n] = multiply_add(element, query[n], sum[r][n]); }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Depth; ++r) {
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { store(scores + (r * Vectors + n) * lanes, sum[r][n]); }
    }
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; ++n) {
        vec largest = load(row_maximum + n * lanes);
#pragma GCC unroll 16
        for (int r = 0; r < Depth; ++r) { largest = maximum(sum[r][n], largest); }
        store(row_maximum + n * lanes, largest);
    }
}

/// Scores of all keys of a tile; `row_maximum` is set to their maximum for each row.
template <int Vectors>
void score_tile(const real* q, const tile& k, std::int64_t keys, std::int64_t units, real* scores,
                real* row_maximum) {
    constexpr int depth = key_depth[Vectors];
    for (int n = 0; n < Vectors; ++n) { store(row_maximum + n * lanes, broadcast(-__builtin_inff())); }
    for (std::int64_t j = 0; j < keys; j += depth) {
        score_keys<Vectors, depth>(q, k.data + j * k.stride, k.stride, keys - j, units,
                                   scores + j * Vectors * lanes, row_maximum);
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

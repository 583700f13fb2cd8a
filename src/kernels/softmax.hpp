// Scores to weights, in place, for one panel and one tile (contract steps 3 and 4), and the logarithm of
// the weights' sum (step 5).

#ifndef TILEWISE_SRC_KERNELS_SOFTMAX_HPP
#define TILEWISE_SRC_KERNELS_SOFTMAX_HPP

#include <cstdint>

#include "../contract.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// The running state of a panel's rows, and the factors of its last fold; each [Vectors * lanes].
struct row_state {
    float* maximum;  ///< m: an integer, or -inf
    float* sum;      ///< l
    float* keep;     ///< a: what the sums so far are multiplied by
    float* take;     ///< b: what the chunk's sums are multiplied by
};

/// 2^f for |f| <= 1.
TILEWISE_INLINE vec exp2_fraction(vec f) {
    const auto& e = contract::exp2_coefficients;
    vec p = fma(f, broadcast(e[5]), broadcast(e[4]));
    p = fma(f, p, broadcast(e[3]));
    p = fma(f, p, broadcast(e[2]));
    p = fma(f, p, broadcast(e[1]));
    p = fma(f, p, broadcast(e[0]));
    return fma(f, p, broadcast(1.0F));
}

/// 2^exponent, +0 where the exponent is below -126.
TILEWISE_INLINE vec fold_factor(vec exponent) {
    const vec power = power_of_two(exponent + broadcast(power_bias));
    return zero_where_less(exponent, broadcast(contract::fold_min_exponent), power);
}

/// The weight of a score whose row's |m_c| is below contract::careful_maximum. `shift` is m_c - power_bias.
TILEWISE_INLINE vec weigh(vec score, vec c, vec shift) {
    const vec rounder = broadcast(contract::rounding_shift);
    const vec r = fma(score, c, rounder) - rounder;
    const vec p = exp2_fraction(fma(score, c, -r));
    const vec exponent = r - shift;
    return zero_where_less(exponent, broadcast(contract::weight_min_exponent + power_bias),
                           p * power_of_two(exponent));
}

/// The same for any m_c.
TILEWISE_INLINE vec weigh_carefully(vec score, vec c, vec chunk_maximum) {
    const vec rounder = broadcast(contract::rounding_shift);
    const vec one = broadcast(1.0F);
    const mask careful = absolute(chunk_maximum) >= broadcast(contract::careful_maximum);
    const vec r = select(careful, nearest(score * c), fma(score, c, rounder) - rounder);
    vec f = fma(score, c, -r);
    f = select(careful && (f > one), one, f);
    f = select(careful && (f < -one), -one, f);
    const vec exponent = r - chunk_maximum;
    const vec power = power_of_two(exponent + broadcast(power_bias));
    return zero_where_less(exponent, broadcast(contract::weight_min_exponent),
                           exp2_fraction(f) * select(exponent == exponent, power, exponent));
}

template <int Vectors, bool Careful>
TILEWISE_INLINE void weigh_tile(float* tile,  // [keys][Vectors * lanes]
                                std::int64_t keys, float exponent, const vec (&chunk_maximum)[Vectors],
                                vec (&chunk_sum)[Vectors]) {
    const vec c = broadcast(exponent);
    vec shift[Vectors];
    vec sum[Vectors];
    for (int n = 0; n < Vectors; ++n) {
        shift[n] = Careful ? chunk_maximum[n] : chunk_maximum[n] - broadcast(power_bias);
        sum[n] = broadcast(0.0F);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) {
            float* const place = tile + (j * Vectors + n) * lanes;
            const vec weight =
                Careful ? weigh_carefully(load(place), c, shift[n]) : weigh(load(place), c, shift[n]);
            store(place, weight);
            sum[n] = sum[n] + weight;
        }
    }
    for (int n = 0; n < Vectors; ++n) { chunk_sum[n] = sum[n]; }
}

/// Turns the scores of a tile into weights, and folds their sum into the state.
template <int Vectors>
void softmax_tile(float* tile, std::int64_t keys, float exponent, const vec (&row_maximum)[Vectors],
                  const row_state& state) {
    const vec lowest = broadcast(-__builtin_inff());
    vec chunk_maximum[Vectors];
    vec shift[Vectors];
    bool careful = false;
    for (int n = 0; n < Vectors; ++n) {
        chunk_maximum[n] = ceiling(row_maximum[n] * broadcast(exponent));
        shift[n] = select(chunk_maximum[n] == lowest, broadcast(0.0F), chunk_maximum[n]);
        careful = careful || any(absolute(shift[n]) >= broadcast(contract::careful_maximum));
    }
    vec chunk_sum[Vectors];
    if (careful) {
        weigh_tile<Vectors, true>(tile, keys, exponent, shift, chunk_sum);
    } else {
        weigh_tile<Vectors, false>(tile, keys, exponent, shift, chunk_sum);
    }
    for (int n = 0; n < Vectors; ++n) {
        const vec before = load(state.maximum + n * lanes);
        const vec after = maximum(before, chunk_maximum[n]);
        const vec base = select(after == lowest, broadcast(0.0F), after);
        const vec keep = fold_factor(before - base);
        const vec take = fold_factor(chunk_maximum[n] - base);
        store(state.maximum + n * lanes, after);
        store(state.sum + n * lanes, fma(load(state.sum + n * lanes), keep, chunk_sum[n] * take));
        store(state.keep + n * lanes, keep);
        store(state.take + n * lanes, take);
    }
}

/// log2 of normal positive numbers.
TILEWISE_INLINE vec log2_of(vec value) {
    const int_vec bits = bits_of(value);
    const int_vec exponent = (bits - int_vec(static_cast<std::int32_t>(contract::sqrt_half_bits))) >> 23;
    const vec u = float_of_bits(bits - (exponent << 23)) - broadcast(1.0F);
    const auto& g = contract::log2_coefficients;
    vec p = broadcast(g[9]);
    for (int i = 8; i >= 0; --i) { p = fma(u, p, broadcast(g[i])); }
    return fma(u, p, to_float(exponent));
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

// Scores to weights, in place, for one panel and one tile (contract steps 3 and 4), and the logarithm of
// the weights' sum (step 5).

#ifndef TILEWISE_SRC_KERNELS_SOFTMAX_HPP
#define TILEWISE_SRC_KERNELS_SOFTMAX_HPP

#include <cstdint>

#include "../contract.hpp"
#include "products.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// The running state of a panel's rows, and the factors of its last fold; each [Vectors * lanes].
struct row_state {
    real* maximum;  ///< m: an integer, or -inf
    real* chunk;    ///< the largest score of the chunk
    real* largest;  ///< and of all
    real* sum;      ///< l
    real* keep;     ///< a: what the sums so far are multiplied by
    real* take;     ///< b: what the chunk's sums are multiplied by
};

/// 2^exponent, +0 where the exponent is below -126.
TILEWISE_INLINE vec fold_factor(vec exponent) {
    return scale_or_zero(broadcast(1.0F), exponent, scale_base(broadcast(0.0F)), contract::fold_min_exponent);
}

/// r of contract step 3.
TILEWISE_INLINE vec round_score(vec score, vec c) {
    const vec shift = broadcast(contract::rounding_shift);
    return fma(score, c, shift) - shift;
}

/// The polynomial with these coefficients, by Horner's rule.
template <int Terms>
TILEWISE_INLINE vec polynomial(vec x, const real (&coefficients)[Terms]) {
    vec p = broadcast(coefficients[Terms - 1]);
#pragma GCC unroll 32
    for (int i = Terms - 2; i >= 0; --i) { p = fma(x, p, broadcast(coefficients[i])); }
    return p;
}

/// 2^f for |f| <= 1.
template <int Terms>
TILEWISE_INLINE vec exp2_by(const real (&coefficients)[Terms], vec f) {
    return fma(f, polynomial(f, coefficients), broadcast(1.0F));
}
TILEWISE_INLINE vec exp2_of(vec f) { return exp2_by(contract::exp2_coefficients, f); }

/// For weights.
#if defined(TILEWISE_BF16_PAIRS)
inline constexpr auto& weight_coefficients = contract::exp2_short_coefficients;
#else
inline constexpr auto& weight_coefficients = contract::exp2_coefficients;
#endif

/// The weights of a row of scores, where |m_c| is below contract::careful_maximum; `base` is the
/// scale_base of m_c. Step by step over all vectors: with one vector after the other, the chain of
/// dependent instructions is longer than what the processor can look ahead.
template <int Vectors>
TILEWISE_INLINE void weigh(vec (&score)[Vectors], vec c, const vec (&base)[Vectors]) {
    const auto& e = weight_coefficients;
    constexpr int last = static_cast<int>(sizeof e / sizeof e[0]) - 1;
    vec r[Vectors];
    vec f[Vectors];
    vec p[Vectors];
#pragma GCC unroll 6
    for (int n = 0; n < Vectors; ++n) { r[n] = round_score(score[n], c); }
#pragma GCC unroll 6
    for (int n = 0; n < Vectors; ++n) { f[n] = fma(score[n], c, -r[n]); }
#pragma GCC unroll 6
    for (int n = 0; n < Vectors; ++n) { p[n] = fma(f[n], broadcast(e[last]), broadcast(e[last - 1])); }
#pragma GCC unroll 16
    for (int i = last - 2; i >= 0; --i) {
#pragma GCC unroll 6
        for (int n = 0; n < Vectors; ++n) { p[n] = fma(f[n], p[n], broadcast(e[i])); }
    }
#pragma GCC unroll 6
    for (int n = 0; n < Vectors; ++n) { p[n] = fma(f[n], p[n], broadcast(1.0F)); }
#pragma GCC unroll 6
    for (int n = 0; n < Vectors; ++n) {
        score[n] = scale_or_zero(p[n], r[n], base[n], contract::weight_min_exponent);
    }
}

/// The same for any m_c (given as it is).
template <int Vectors>
TILEWISE_INLINE void weigh_carefully(vec (&score)[Vectors], vec c, const vec (&chunk_maximum)[Vectors]) {
    const vec one = broadcast(1.0F);
    for (int n = 0; n < Vectors; ++n) {
        const mask careful = absolute(chunk_maximum[n]) >= broadcast(contract::careful_maximum);
        const vec r = select(careful, nearest(score[n] * c), round_score(score[n], c));
        vec f = fma(score[n], c, -r);
        f = select(careful && (f > one), one, f);
        f = select(careful && (f < -one), -one, f);
        vec p = exp2_by(weight_coefficients, f);
        const vec exponent = r - chunk_maximum[n];  // may be NaN, and so is the weight then
        p = scale_or_zero(p, exponent, scale_base(broadcast(0.0F)), contract::weight_min_exponent);
        score[n] = select(exponent == exponent, p, exponent);
    }
}

TILEWISE_INLINE bool needs_care(vec chunk_maximum) {
    return any(absolute(chunk_maximum) >= broadcast(contract::careful_maximum));
}

template <int Rows, bool Careful>
TILEWISE_INLINE void weigh_some(vec (&score)[Rows], vec c, const vec (&base)[Rows]) {
    if constexpr (Careful) {
        weigh_carefully<Rows>(score, c, base);
    } else {
        weigh<Rows>(score, c, base);
    }
}

/// What becomes of a tile of scores, [keys][Vectors * lanes].
struct weight_form {
    bool packed;          ///< as units, [units of keys][Vectors * lanes]; otherwise a real for each key
    bool starts_in_pair;  ///< the first key is the second of its pair
};

#if defined(TILEWISE_BF16_PAIRS)
/// The weights of a pair of keys, of which the first or the second may be missing; `rows` has the scores of
/// those that are there.
template <int Vectors, bool Careful, bool First, bool Second>
TILEWISE_INLINE void weigh_pair(const real* rows, vec c, const vec (&base)[2 * Vectors],
                                vec (&pair)[Vectors]) {
    constexpr int second = First && Second ? Vectors : 0;
    vec weight[2 * Vectors];
#    pragma GCC unroll 6
    for (int n = 0; n < 2 * Vectors; ++n) {
        weight[n] = load(rows + (n < Vectors ? n : n - Vectors + second) * lanes);
    }
    weigh_some<2 * Vectors, Careful>(weight, c, base);
#    pragma GCC unroll 3
    for (int n = 0; n < Vectors; ++n) {
        pair[n] = round_to_pairs(First ? weight[n] : broadcast(0.0F),
                                 Second ? weight[Vectors + n] : broadcast(0.0F));
    }
}

template <int Vectors, bool Careful>
TILEWISE_INLINE void weigh_rows(real* tile, std::int64_t keys, vec c, const vec (&key_base)[Vectors],
                                const weight_form& form, vec (&sum)[Vectors]) {
    vec base[2 * Vectors];
    for (int n = 0; n < 2 * Vectors; ++n) { base[n] = key_base[n % Vectors]; }
    std::int64_t j = 0;
    real* to = tile;
    const auto weigh_next = [&]<bool First, bool Second>() TILEWISE_INLINE_LAMBDA {
        real* const rows = tile + j * Vectors * lanes;
        vec pair[Vectors];
        weigh_pair<Vectors, Careful, First, Second>(rows, c, base, pair);
#    pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) {
            sum[n] = add_weights(pair[n], sum[n]);
            if (form.packed) {
                store(to + n * lanes, pair[n]);
                continue;
            }
            if (First) { store(rows + n * lanes, first_of(pair[n])); }
            if (Second) { store(rows + (n + (First ? Vectors : 0)) * lanes, second_of(pair[n])); }
        }
        to += Vectors * lanes;
    };
    if (form.starts_in_pair) {
        weigh_next.template operator()<false, true>();
        ++j;
    }
    for (; j + 2 <= keys; j += 2) { weigh_next.template operator()<true, true>(); }
    if (j < keys) { weigh_next.template operator()<true, false>(); }
}
#else
template <int Vectors, bool Careful>
TILEWISE_INLINE void weigh_rows(real* tile, std::int64_t keys, vec c, const vec (&base)[Vectors],
                                const weight_form& /*form*/, vec (&sum)[Vectors]) {
    for (std::int64_t j = 0; j < keys; ++j) {
        real* const row = tile + j * Vectors * lanes;
        vec weight[Vectors];
#    pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) { weight[n] = load(row + n * lanes); }
        weigh_some<Vectors, Careful>(weight, c, base);
#    pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) {
            store(row + n * lanes, weight[n]);
            sum[n] = add_weights(weight[n], sum[n]);
        }
    }
}
#endif

template <int Vectors, bool Careful>
TILEWISE_INLINE void weigh_tile(real* tile, std::int64_t keys, real exponent,
                                const vec (&chunk_maximum)[Vectors], const weight_form& form,
                                vec (&chunk_sum)[Vectors]) {
    vec base[Vectors];
    vec sum[Vectors];
    for (int n = 0; n < Vectors; ++n) {
        base[n] = Careful ? chunk_maximum[n] : scale_base(chunk_maximum[n]);
        sum[n] = broadcast(0.0F);
    }
    weigh_rows<Vectors, Careful>(tile, keys, broadcast(exponent), base, form, sum);
    for (int n = 0; n < Vectors; ++n) { chunk_sum[n] = sum[n]; }
}

/// Turns the scores of a tile into weights; finds m_c and l_c from them and their maximum, state.chunk.
template <int Vectors>
TILEWISE_INLINE void weigh_chunk(real* tile, std::int64_t keys, real exponent, const row_state& state,
                                 const weight_form& form, vec (&chunk_maximum)[Vectors],
                                 vec (&chunk_sum)[Vectors]) {
    const vec lowest = broadcast(-__builtin_inff());
    vec shift[Vectors];
    bool careful = false;
    for (int n = 0; n < Vectors; ++n) {
        chunk_maximum[n] = ceiling(load(state.chunk + n * lanes) * broadcast(exponent));
        shift[n] = select(chunk_maximum[n] == lowest, broadcast(0.0F), chunk_maximum[n]);
        careful = careful || needs_care(shift[n]);
    }
    if (careful) {
        weigh_tile<Vectors, true>(tile, keys, exponent, shift, form, chunk_sum);
    } else {
        weigh_tile<Vectors, false>(tile, keys, exponent, shift, form, chunk_sum);
    }
}

/// Folds a chunk's m_c into the state: what the sums so far and the chunk's are to be multiplied by.
template <int Vectors>
void fold_maximum(const vec (&chunk_maximum)[Vectors], const row_state& state) {
    const vec lowest = broadcast(-__builtin_inff());
    for (int n = 0; n < Vectors; ++n) {
        const vec before = load(state.maximum + n * lanes);
        const vec after = maximum(before, chunk_maximum[n]);
        const vec base = select(after == lowest, broadcast(0.0F), after);
        store(state.maximum + n * lanes, after);
        store(state.largest + n * lanes,
              maximum(load(state.chunk + n * lanes), load(state.largest + n * lanes)));
        store(state.keep + n * lanes, fold_factor(before - base));
        store(state.take + n * lanes, fold_factor(chunk_maximum[n] - base));
    }
}

/// And its l_c.
template <int Vectors>
void fold_sum(const vec (&chunk_sum)[Vectors], const row_state& state) {
    for (int n = 0; n < Vectors; ++n) {
        real* const sum = state.sum + n * lanes;
        store(sum, fma(load(sum), load(state.keep + n * lanes), chunk_sum[n] * load(state.take + n * lanes)));
    }
}

/// Turns the scores of a tile into weights, and folds their sum into the state.
template <int Vectors>
void softmax_tile(real* tile, std::int64_t keys, real exponent, const row_state& state,
                  const weight_form& form) {
    vec chunk_maximum[Vectors];
    vec chunk_sum[Vectors];
    weigh_chunk<Vectors>(tile, keys, exponent, state, form, chunk_maximum, chunk_sum);
    fold_maximum<Vectors>(chunk_maximum, state);
    fold_sum<Vectors>(chunk_sum, state);
}

/// log2 of normal positive numbers.
TILEWISE_INLINE vec log2_of(vec value) {
    const int_vec bits = bits_of(value);
    const int_vec exponent = exponent_field(bits - int_vec(contract::sqrt_half_bits));
    const vec u = float_of_bits(bits - (exponent << contract::fraction_bits)) - broadcast(1.0F);
    return fma(u, polynomial(u, contract::log2_coefficients), to_float(exponent));
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

// What products are made of: numbers, or pairs of bf16 (contract.hpp, step 7).
//
// A unit is what one lane holds of Q, K, V and the weights: a real number; or, for arithmetic::fastest, a
// pair of bf16: of successive elements where scores are computed, of successive keys where values are summed.
// Units are moved as real numbers, whatever their bits mean.

#ifndef TILEWISE_SRC_KERNELS_PRODUCTS_HPP
#define TILEWISE_SRC_KERNELS_PRODUCTS_HPP

#include <cstddef>
#include <cstdint>

#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

inline constexpr std::int64_t unit_elements = in_pairs ? 2 : 1;

/// Units that so many elements take.
TILEWISE_INLINE constexpr std::int64_t unit_count(std::int64_t elements) {
    return (elements + unit_elements - 1) / unit_elements;
}

/// sum + a b, with units a and b.
#if !defined(TILEWISE_BF16_PAIRS)
TILEWISE_INLINE vec multiply_add(vec a, vec b, vec sum) { return fma(a, b, sum); }
#elif defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE __m512i bits_of_pairs(vec pairs) { return _mm512_castps_si512(pairs); }
TILEWISE_INLINE vec multiply_add(vec a, vec b, vec sum) {
    return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, bits_of_pairs(a)),
                            __builtin_bit_cast(__m512bh, bits_of_pairs(b)));
}
#elif defined(TILEWISE_ISA_IS_neon)
TILEWISE_INLINE vec multiply_add(vec a, vec b, vec sum) {
    return vbfdotq_f32(sum, vreinterpretq_bf16_f32(a), vreinterpretq_bf16_f32(b));
}
#else
#    error "products.hpp: no products of pairs for this instruction set"
#endif

/// sum + the weights of a unit.
TILEWISE_INLINE vec add_weights(vec weights, vec sum) {
#if defined(TILEWISE_BF16_PAIRS)
    return multiply_add(weights, float_of_bits(int_vec(0x3f803f80)), sum);  // by 1.0 and 1.0
#else
    return sum + weights;
#endif
}

#if defined(TILEWISE_BF16_PAIRS)
/// The numbers of pairs.
TILEWISE_INLINE vec first_of(vec pairs) { return float_of_bits(bits_of(pairs) << 16); }
TILEWISE_INLINE vec second_of(vec pairs) {
    return float_of_bits(bits_of(pairs) & int_vec(static_cast<std::int32_t>(0xffff0000U)));
}

// Rounding to bf16, to the nearest even; a NaN stays one. Pairs of the lanes of two vectors, and the lanes of
// two vectors one after the other. And pairs of as many elements of two rows as there are lanes.
#    if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec round_in_order(vec low, vec high) {
    return _mm512_castsi512_ps(__builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(high, low)));
}
/// Numbers n and n + 16 of 32 become neighbours.
TILEWISE_INLINE vec interleave_halves(__m512i halves) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i order =
        _mm512_or_si512(first, _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(16)), 16));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves));
}
TILEWISE_INLINE vec round_to_pairs(vec first, vec second) {
    return interleave_halves(bits_of_pairs(round_in_order(first, second)));
}
TILEWISE_INLINE vec interleave_rows(const std::byte* first, const std::byte* second) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
    return interleave_halves(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
}
#    else
TILEWISE_INLINE int_vec bf16_bits(vec value) {
    const int_vec nan(0x7fc00000);
    const int_vec bits = bits_of(select(value == value, value, float_of_bits(nan)));
    return bits + int_vec(0x7fff) + ((bits >> 16) & int_vec(1));
}
TILEWISE_INLINE vec round_in_order(vec low, vec high) {
    const uint16x8_t both =
        vuzp2q_u16(vreinterpretq_u16_s32(bf16_bits(low)), vreinterpretq_u16_s32(bf16_bits(high)));
    return vreinterpretq_f32_u16(both);
}
TILEWISE_INLINE vec round_to_pairs(vec first, vec second) {
    const uint16x8_t both =
        vtrn2q_u16(vreinterpretq_u16_s32(bf16_bits(first)), vreinterpretq_u16_s32(bf16_bits(second)));
    return vreinterpretq_f32_u16(both);
}
TILEWISE_INLINE vec interleave_rows(const std::byte* first, const std::byte* second) {
    uint16x4_t a;
    uint16x4_t b;
    __builtin_memcpy(&a, first, sizeof a);
    __builtin_memcpy(&b, second, sizeof b);
    return vreinterpretq_f32_u16(vcombine_u16(vzip1_u16(a, b), vzip2_u16(a, b)));
}
#    endif
#endif

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

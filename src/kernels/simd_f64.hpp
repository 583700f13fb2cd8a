// What simd.hpp has of functions that depend on `real`, here double.

#ifndef TILEWISE_SRC_KERNELS_SIMD_F64_HPP
#define TILEWISE_SRC_KERNELS_SIMD_F64_HPP

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// a * b + c, rounded once. SSE2 has no such instruction, and there is no wider type to emulate it with: the
/// C library's is correctly rounded, and slow.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec fma(vec a, vec b, vec c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(TILEWISE_ISA_IS_avx2)
TILEWISE_INLINE vec fma(vec a, vec b, vec c) { return _mm256_fmadd_pd(a, b, c); }
#elif defined(TILEWISE_ISA_IS_sse2)
TILEWISE_INLINE __m128d high_half(__m128d a) { return _mm_unpackhi_pd(a, a); }
TILEWISE_INLINE double fma_of_lowest(__m128d a, __m128d b, __m128d c) {
    return __builtin_fma(_mm_cvtsd_f64(a), _mm_cvtsd_f64(b), _mm_cvtsd_f64(c));
}
TILEWISE_INLINE vec fma(vec a, vec b, vec c) {
    const double low = fma_of_lowest(a, b, c);
    return _mm_set_pd(fma_of_lowest(high_half(a), high_half(b), high_half(c)), low);
}
#else
TILEWISE_INLINE vec fma(vec a, vec b, vec c) { return vfmaq_f64(c, a, b); }
#endif

// Exponents, as numbers, into their place and back; `field` is at least -2^62.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE int_vec shift_to_exponent(int_vec number) { return _mm512_slli_epi64(number, 52); }
TILEWISE_INLINE int_vec shift_from_exponent(int_vec field) { return _mm512_srli_epi64(field, 52); }
#elif defined(TILEWISE_ISA_IS_avx2)
TILEWISE_INLINE int_vec shift_to_exponent(int_vec number) { return _mm256_slli_epi64(number, 52); }
TILEWISE_INLINE int_vec shift_from_exponent(int_vec field) { return _mm256_srli_epi64(field, 52); }
#elif defined(TILEWISE_ISA_IS_sse2)
TILEWISE_INLINE int_vec shift_to_exponent(int_vec number) { return _mm_slli_epi64(number, 52); }
TILEWISE_INLINE int_vec shift_from_exponent(int_vec field) { return _mm_srli_epi64(field, 52); }
#else
TILEWISE_INLINE int_vec shift_to_exponent(int_vec number) { return vshlq_n_s64(number, 52); }
TILEWISE_INLINE int_vec shift_from_exponent(int_vec field) { return vshrq_n_s64(field, 52); }
#endif
/// The exponent of a positive number's bits, without a bias. Made positive first: few instruction sets shift
/// 64 bits with their sign.
TILEWISE_INLINE int_vec exponent_field(int_vec bits) {
    constexpr integer offset = 1024;
    return shift_from_exponent(bits + int_vec(offset << 52)) - int_vec(offset);
}
/// Of small numbers, in the lowest bits of the significand of 1.5 * 2^52: few instruction sets convert them.
TILEWISE_INLINE vec to_float(int_vec value) {
    const vec shift = broadcast(contract::rounding_shift);
    return float_of_bits(bits_of(shift) + value) - shift;
}

TILEWISE_INLINE bool is_finite_number(double value) { return __builtin_fabs(value) <= __DBL_MAX__; }

/// value where !(key < limit), else +0. (Where the key is NaN, the value stays.)
TILEWISE_INLINE vec zero_where_less(vec key, vec limit, vec value) {
#if defined(TILEWISE_ISA_IS_avx512)
    return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(key, limit, _CMP_NLT_UQ), value);
#elif defined(TILEWISE_ISA_IS_avx2)
    return _mm256_and_pd(_mm256_cmp_pd(key, limit, _CMP_NLT_UQ), value);
#elif defined(TILEWISE_ISA_IS_sse2)
    return _mm_and_pd(_mm_cmpnlt_pd(key, limit), value);
#else
    return xsimd::select(key < limit, vec(0.0), value);
#endif
}

// Exact scaling by powers of two, as in simd_f32.hpp, with -1022 <= lowest <= r - m <= 1023.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec scale_base(vec m) { return m; }
TILEWISE_INLINE vec scale_or_zero(vec value, vec r, vec base, double lowest) {
    const vec exponent = r - base;
    return _mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(exponent, broadcast(lowest), _CMP_NLT_UQ), value,
                                  exponent);
}
#else
inline constexpr double power_bias = 0x1p52 + 1023.0;
TILEWISE_INLINE vec scale_base(vec m) { return m - broadcast(power_bias); }
TILEWISE_INLINE vec scale_or_zero(vec value, vec r, vec base, double lowest) {
    const vec exponent = r - base;
    const vec power = float_of_bits(shift_to_exponent(bits_of(exponent)));
    return zero_where_less(exponent, broadcast(lowest + power_bias), value * power);
}
#endif

/// As many f32 as there are lanes, exactly.
TILEWISE_INLINE vec load_f32(const float* from) {
#if defined(TILEWISE_ISA_IS_avx512)
    return _mm512_cvtps_pd(_mm256_loadu_ps(from));
#elif defined(TILEWISE_ISA_IS_avx2)
    return _mm256_cvtps_pd(_mm_loadu_ps(from));
#elif defined(TILEWISE_ISA_IS_sse2)
    return _mm_set_pd(static_cast<double>(from[1]), static_cast<double>(from[0]));
#else
    return vcvt_f64_f32(vld1_f32(from));
#endif
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

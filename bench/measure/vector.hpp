// The few vector operations that the measuring loops use, in a namespace of the instruction set.
//
// Plain intrinsics, not the library's own wrappers: a measure that shares code with what it measures proves
// less. Of those whose names do not tell:
//   zero_where_less(x, limit, value)  value, or 0 in lanes where x < limit;
//   scale_by_power(value, shifted)    value * 2^n, where shifted = n + 1.5 * 2^23;
//   forget(value)                     makes the optimiser forget what it knows of a value.
// f64_vec is as wide, and has what its peak takes.

#ifndef TILEWISE_MEASURE_VECTOR_HPP
#define TILEWISE_MEASURE_VECTOR_HPP

#if defined(TILEWISE_ISA_IS_neon)
#    include <arm_neon.h>
#else
#    include <immintrin.h>
#endif

#define TILEWISE_MEASURE_INLINE static inline __attribute__((always_inline))

/// Before a loop over an array that is to live in registers.
#if defined(__clang__)
#    define TILEWISE_MEASURE_UNROLL _Pragma("unroll")
#else
#    define TILEWISE_MEASURE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace tilewise::measure::TILEWISE_ISA {

#if defined(TILEWISE_ISA_IS_avx512)
using vec = __m512;
inline constexpr int lanes = 16;
inline constexpr int chains = 24;
TILEWISE_MEASURE_INLINE vec load(const float* from) { return _mm512_loadu_ps(from); }
TILEWISE_MEASURE_INLINE void store(float* to, vec value) { _mm512_storeu_ps(to, value); }
TILEWISE_MEASURE_INLINE vec broadcast(float value) { return _mm512_set1_ps(value); }
TILEWISE_MEASURE_INLINE vec add(vec a, vec b) { return _mm512_add_ps(a, b); }
TILEWISE_MEASURE_INLINE vec maximum(vec a, vec b) { return _mm512_max_ps(a, b); }
TILEWISE_MEASURE_INLINE vec subtract(vec a, vec b) { return _mm512_sub_ps(a, b); }
TILEWISE_MEASURE_INLINE vec zero_where_less(vec x, vec limit, vec value) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), value);
}
TILEWISE_MEASURE_INLINE vec scale_by_power(vec value, vec shifted) {
    const __m512i exponents = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value), exponents));
}
TILEWISE_MEASURE_INLINE vec multiply_add(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
TILEWISE_MEASURE_INLINE void forget(vec& value) { asm volatile("" : "+v"(value)); }
using f64_vec = __m512d;
TILEWISE_MEASURE_INLINE f64_vec broadcast(double value) { return _mm512_set1_pd(value); }
TILEWISE_MEASURE_INLINE f64_vec multiply_add(f64_vec a, f64_vec b, f64_vec c) {
    return _mm512_fmadd_pd(a, b, c);
}
TILEWISE_MEASURE_INLINE void forget(f64_vec& value) { asm volatile("" : "+v"(value)); }
#elif defined(TILEWISE_ISA_IS_avx2)
using vec = __m256;
inline constexpr int lanes = 8;
inline constexpr int chains = 12;
TILEWISE_MEASURE_INLINE vec load(const float* from) { return _mm256_loadu_ps(from); }
TILEWISE_MEASURE_INLINE void store(float* to, vec value) { _mm256_storeu_ps(to, value); }
TILEWISE_MEASURE_INLINE vec broadcast(float value) { return _mm256_set1_ps(value); }
TILEWISE_MEASURE_INLINE vec add(vec a, vec b) { return _mm256_add_ps(a, b); }
TILEWISE_MEASURE_INLINE vec maximum(vec a, vec b) { return _mm256_max_ps(a, b); }
TILEWISE_MEASURE_INLINE vec subtract(vec a, vec b) { return _mm256_sub_ps(a, b); }
TILEWISE_MEASURE_INLINE vec zero_where_less(vec x, vec limit, vec value) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), value);
}
TILEWISE_MEASURE_INLINE vec scale_by_power(vec value, vec shifted) {
    const __m256i exponents = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), exponents));
}
TILEWISE_MEASURE_INLINE vec multiply_add(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
TILEWISE_MEASURE_INLINE void forget(vec& value) { asm volatile("" : "+x"(value)); }
using f64_vec = __m256d;
TILEWISE_MEASURE_INLINE f64_vec broadcast(double value) { return _mm256_set1_pd(value); }
TILEWISE_MEASURE_INLINE f64_vec multiply_add(f64_vec a, f64_vec b, f64_vec c) {
    return _mm256_fmadd_pd(a, b, c);
}
TILEWISE_MEASURE_INLINE void forget(f64_vec& value) { asm volatile("" : "+x"(value)); }
#elif defined(TILEWISE_ISA_IS_sse2)
// No fused multiply-add: its peak is that of a multiplication and an addition.
using vec = __m128;
inline constexpr int lanes = 4;
inline constexpr int chains = 12;
TILEWISE_MEASURE_INLINE vec load(const float* from) { return _mm_loadu_ps(from); }
TILEWISE_MEASURE_INLINE void store(float* to, vec value) { _mm_storeu_ps(to, value); }
TILEWISE_MEASURE_INLINE vec broadcast(float value) { return _mm_set1_ps(value); }
TILEWISE_MEASURE_INLINE vec add(vec a, vec b) { return _mm_add_ps(a, b); }
TILEWISE_MEASURE_INLINE vec maximum(vec a, vec b) { return _mm_max_ps(a, b); }
TILEWISE_MEASURE_INLINE vec subtract(vec a, vec b) { return _mm_sub_ps(a, b); }
TILEWISE_MEASURE_INLINE vec zero_where_less(vec x, vec limit, vec value) {
    return _mm_andnot_ps(_mm_cmplt_ps(x, limit), value);
}
TILEWISE_MEASURE_INLINE vec scale_by_power(vec value, vec shifted) {
    const __m128i exponents = _mm_slli_epi32(_mm_castps_si128(shifted), 23);
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(value), exponents));
}
TILEWISE_MEASURE_INLINE vec multiply_add(vec a, vec b, vec c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
TILEWISE_MEASURE_INLINE void forget(vec& value) { asm volatile("" : "+x"(value)); }
using f64_vec = __m128d;
TILEWISE_MEASURE_INLINE f64_vec broadcast(double value) { return _mm_set1_pd(value); }
TILEWISE_MEASURE_INLINE f64_vec multiply_add(f64_vec a, f64_vec b, f64_vec c) {
    return _mm_add_pd(_mm_mul_pd(a, b), c);
}
TILEWISE_MEASURE_INLINE void forget(f64_vec& value) { asm volatile("" : "+x"(value)); }
#elif defined(TILEWISE_ISA_IS_neon)
using vec = float32x4_t;
inline constexpr int lanes = 4;
inline constexpr int chains = 24;
TILEWISE_MEASURE_INLINE vec load(const float* from) { return vld1q_f32(from); }
TILEWISE_MEASURE_INLINE void store(float* to, vec value) { vst1q_f32(to, value); }
TILEWISE_MEASURE_INLINE vec broadcast(float value) { return vdupq_n_f32(value); }
TILEWISE_MEASURE_INLINE vec add(vec a, vec b) { return vaddq_f32(a, b); }
TILEWISE_MEASURE_INLINE vec maximum(vec a, vec b) { return vmaxq_f32(a, b); }
TILEWISE_MEASURE_INLINE vec subtract(vec a, vec b) { return vsubq_f32(a, b); }
TILEWISE_MEASURE_INLINE vec zero_where_less(vec x, vec limit, vec value) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, limit)));
}
TILEWISE_MEASURE_INLINE vec scale_by_power(vec value, vec shifted) {
    const int32x4_t exponents = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value), exponents));
}
TILEWISE_MEASURE_INLINE vec multiply_add(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
TILEWISE_MEASURE_INLINE void forget(vec& value) { asm volatile("" : "+w"(value)); }
using f64_vec = float64x2_t;
TILEWISE_MEASURE_INLINE f64_vec broadcast(double value) { return vdupq_n_f64(value); }
TILEWISE_MEASURE_INLINE f64_vec multiply_add(f64_vec a, f64_vec b, f64_vec c) { return vfmaq_f64(c, a, b); }
TILEWISE_MEASURE_INLINE void forget(f64_vec& value) { asm volatile("" : "+w"(value)); }
#else
#    error "vector.hpp: no vector type for this instruction set"
#endif

}  // namespace tilewise::measure::TILEWISE_ISA

#endif

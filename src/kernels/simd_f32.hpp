// What simd.hpp has of functions that depend on `real`, here float; and conversions of stored elements.

#ifndef TILEWISE_SRC_KERNELS_SIMD_F32_HPP
#define TILEWISE_SRC_KERNELS_SIMD_F32_HPP

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// a * b + c, rounded once. xsimd 8.1 has none for AVX-512 (its xsimd::fma multiplies and adds there), and
/// SSE2 has no such instruction.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(TILEWISE_ISA_IS_sse2)
/// Two lanes: the product is exact in binary64; its sum with c is rounded to odd, so that rounding it
/// again, to binary32, gives what a single rounding gives (Boldo and Melquiond, "Emulation of FMA and
/// correctly rounded sums", 2008).
TILEWISE_INLINE __m128 fma_of_two(__m128d a, __m128d b, __m128d c) {
    const __m128d product = _mm_mul_pd(a, b);
    const __m128d sum = _mm_add_pd(product, c);
    const __m128d part = _mm_sub_pd(sum, product);
    const __m128d error = _mm_add_pd(_mm_sub_pd(product, _mm_sub_pd(sum, part)), _mm_sub_pd(c, part));
    const __m128d zero = _mm_setzero_pd();
    const __m128i inexact =
        _mm_castpd_si128(_mm_and_pd(_mm_cmpneq_pd(error, zero), _mm_cmpord_pd(error, error)));
    const __m128i signs = _mm_srai_epi32(_mm_castpd_si128(_mm_xor_pd(sum, error)), 31);
    const __m128i too_far = _mm_and_si128(_mm_shuffle_epi32(signs, _MM_SHUFFLE(3, 3, 1, 1)), inexact);
    const __m128i truncated = _mm_add_epi64(_mm_castpd_si128(sum), too_far);
    const __m128i odd = _mm_or_si128(truncated, _mm_srli_epi64(inexact, 63));
    return _mm_cvtpd_ps(_mm_castsi128_pd(odd));
}
TILEWISE_INLINE vec fma(vec a, vec b, vec c) {
    const __m128 x = a;
    const __m128 y = b;
    const __m128 z = c;
    const __m128 low = fma_of_two(_mm_cvtps_pd(x), _mm_cvtps_pd(y), _mm_cvtps_pd(z));
    const __m128 high = fma_of_two(_mm_cvtps_pd(_mm_movehl_ps(x, x)), _mm_cvtps_pd(_mm_movehl_ps(y, y)),
                                   _mm_cvtps_pd(_mm_movehl_ps(z, z)));
    return _mm_movelh_ps(low, high);
}
#else
TILEWISE_INLINE vec fma(vec a, vec b, vec c) { return xsimd::fma(a, b, c); }
#endif

/// The largest lane of numbers.
TILEWISE_INLINE float largest_lane(vec a) {
#if defined(TILEWISE_ISA_IS_avx512)
    return _mm512_reduce_max_ps(a);
#else
    alignas(64) float values[lanes];
    store(values, a);
    float largest = values[0];
    for (int n = 1; n < lanes; ++n) { largest = values[n] > largest ? values[n] : largest; }
    return largest;
#endif
}

TILEWISE_INLINE vec to_float(int_vec value) { return xsimd::batch_cast<float>(value); }
/// The exponent of a positive number's bits, without a bias.
TILEWISE_INLINE int_vec exponent_field(int_vec bits) { return bits >> 23; }
TILEWISE_INLINE bool is_finite_number(float value) { return __builtin_fabsf(value) <= __FLT_MAX__; }

/// value where !(key < limit), else +0. (Where the key is NaN, the value stays.)
TILEWISE_INLINE vec zero_where_less(vec key, vec limit, vec value) {
#if defined(TILEWISE_ISA_IS_avx512)
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(key, limit, _CMP_NLT_UQ), value);
#elif defined(TILEWISE_ISA_IS_avx2)
    return _mm256_and_ps(_mm256_cmp_ps(key, limit, _CMP_NLT_UQ), value);
#elif defined(TILEWISE_ISA_IS_sse2)
    return _mm_and_ps(_mm_cmpnlt_ps(key, limit), value);
#else
    return xsimd::select(key < limit, vec(0.0F), value);
#endif
}

// Exact scaling by powers of two. `scale_base(m)` prepares m; `value * 2^(r - m)`, for integers r and m with
// -126 <= lowest <= r - m <= 127 and +0 where r - m < lowest, is then scale_or_zero(value, r, base, lowest).
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec scale_base(vec m) { return m; }
TILEWISE_INLINE vec scale_or_zero(vec value, vec r, vec base, float lowest) {
    const vec exponent = r - base;
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(exponent, broadcast(lowest), _CMP_NLT_UQ), value,
                                  exponent);
}
#else
/// Moves the exponent, with its bias of 127, into the lowest bits of the significand; a shift then moves it
/// on into its place, and drops the rest.
inline constexpr float power_bias = 0x1p23F + 127.0F;
TILEWISE_INLINE vec scale_base(vec m) { return m - broadcast(power_bias); }
TILEWISE_INLINE vec scale_or_zero(vec value, vec r, vec base, float lowest) {
    const vec exponent = r - base;
    const vec power = float_of_bits(bits_of(exponent) << 23);
    return zero_where_less(exponent, broadcast(lowest + power_bias), value * power);
}
#endif

// As many 16-bit numbers as there are lanes: zero-extended, and the lowest bits of each lane.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE __m256i load_16_bits(const std::uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
TILEWISE_INLINE int_vec load_u16(const std::uint16_t* from) {
    return _mm512_cvtepu16_epi32(load_16_bits(from));
}
TILEWISE_INLINE void store_16_bits(std::uint16_t* to, __m256i value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}
TILEWISE_INLINE void store_u16(std::uint16_t* to, int_vec value) {
    store_16_bits(to, _mm512_cvtepi32_epi16(value));
}
#elif defined(TILEWISE_ISA_IS_avx2)
TILEWISE_INLINE __m128i load_16_bits(const std::uint16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
TILEWISE_INLINE int_vec load_u16(const std::uint16_t* from) {
    return _mm256_cvtepu16_epi32(load_16_bits(from));
}
TILEWISE_INLINE void store_16_bits(std::uint16_t* to, __m128i value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
TILEWISE_INLINE __m128i lowest_16_bits(int_vec value) {
    const __m256i low = _mm256_and_si256(value, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), _MM_SHUFFLE(3, 1, 2, 0));
    return _mm256_castsi256_si128(packed);
}
TILEWISE_INLINE void store_u16(std::uint16_t* to, int_vec value) { store_16_bits(to, lowest_16_bits(value)); }
#elif defined(TILEWISE_ISA_IS_sse2)
TILEWISE_INLINE int_vec load_u16(const std::uint16_t* from) {
    return _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)), _mm_setzero_si128());
}
TILEWISE_INLINE void store_u16(std::uint16_t* to, int_vec value) {
    // Packing saturates signed numbers: what is sign-extended first stays as it is.
    const __m128i low = _mm_srai_epi32(_mm_slli_epi32(value, 16), 16);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(low, low));
}
#else
TILEWISE_INLINE int_vec load_u16(const std::uint16_t* from) {
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(from)));
}
TILEWISE_INLINE void store_u16(std::uint16_t* to, int_vec value) {
    vst1_u16(to, vmovn_u32(vreinterpretq_u32_s32(value)));
}
#endif

#if defined(TILEWISE_ISA_IS_avx512)
/// Lanes of two vectors in turns: a0 b0 a1 b1 ...
TILEWISE_INLINE void interleave(vec (&a)[2]) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const vec first = _mm512_permutex2var_ps(a[0], low, a[1]);
    a[1] = _mm512_permutex2var_ps(a[0], high, a[1]);
    a[0] = first;
}
#endif

/// As many signed bytes as there are lanes.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE int_vec load_i8(const std::int8_t* from) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
#elif defined(TILEWISE_ISA_IS_avx2)
TILEWISE_INLINE int_vec load_i8(const std::int8_t* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
#else
TILEWISE_INLINE int_vec load_i8(const std::int8_t* from) {
    std::int32_t bytes = 0;
    __builtin_memcpy(&bytes, from, sizeof bytes);
#    if defined(TILEWISE_ISA_IS_sse2)
    const __m128i low = _mm_cvtsi32_si128(bytes);
    const __m128i pairs = _mm_unpacklo_epi8(low, low);
    return _mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24);
#    else
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)))));
#    endif
}
#endif

/// The lowest four bits of each lane, minus 8, times a scale that all lanes share.
TILEWISE_INLINE vec scaled_nibble(int_vec bits, vec scale) {
#if defined(TILEWISE_ISA_IS_avx512)
    const vec numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(bits, numbers * scale);  // looks at four bits of an index
#else
    return to_float((bits & int_vec(15)) - int_vec(8)) * scale;
#endif
}

/// A few bits of each lane, from bit First on, minus half of what they can be: they become the lowest bits of
/// the significand of a number whose exponent makes up for their place. Some bits can be flipped first.
template <int Count, int First, std::int32_t Flip = 0>
TILEWISE_INLINE vec field_minus_half(int_vec word) {
    static_assert(First + Count <= 23);
    constexpr int exponent = 23 - First;
    constexpr std::int32_t field = ((1 << Count) - 1) << First;
    constexpr std::int32_t others = ((127 + exponent) << 23) ^ (Flip << First);
    return float_of_bits((word & int_vec(field)) ^ int_vec(others)) -
           broadcast(static_cast<float>((1 << exponent) + (1 << (Count - 1))));
}
/// Nibble n of each word, minus 8.
TILEWISE_INLINE vec nibble_minus_8(int_vec word, std::int64_t n) {
    switch (n) {
        case 0:
            return field_minus_half<4, 0>(word);
        case 1:
            return field_minus_half<4, 4>(word);
        case 2:
            return field_minus_half<4, 8>(word);
        case 3:
            return field_minus_half<4, 12>(word);
        case 4:
            return field_minus_half<4, 16>(word);
        case 5:
            return field_minus_half<4, 8>(word >> 12);
        case 6:
            return field_minus_half<4, 12>(word >> 12);
        default:
            return field_minus_half<4, 16>(word >> 12);
    }
}
/// Byte n of each word: one in two's complement is 128 less than with its highest bit flipped.
TILEWISE_INLINE vec signed_byte(int_vec word, std::int64_t n) {
    const int_vec two = n < 2 ? word : word >> 16;
    return n % 2 == 0 ? field_minus_half<8, 0, 128>(two) : field_minus_half<8, 8, 128>(two);
}

/// For formats with 5 exponent bits, whose infinity and NaN come out as 2^16 and more where they are
/// converted as numbers: gives those all exponent bits.
TILEWISE_INLINE vec with_specials(vec magnitude) {
    const vec special = float_of_bits(bits_of(magnitude) | int_vec(0x7f800000));
    return select(magnitude < broadcast(0x1p16F), magnitude, special);
}

// binary16 to binary32, exactly, from the lowest bits of lanes or from memory, and back, rounded to the
// nearest even; NaN must be the canonical one.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec f16_to_float(__m256i halves) { return _mm512_cvtph_ps(halves); }
TILEWISE_INLINE vec f16_to_float(int_vec bits) { return f16_to_float(_mm512_cvtepi32_epi16(bits)); }
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) { return f16_to_float(load_16_bits(from)); }
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    store_16_bits(to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(TILEWISE_ISA_IS_avx2)
TILEWISE_INLINE vec f16_to_float(__m128i halves) { return _mm256_cvtph_ps(halves); }
TILEWISE_INLINE vec f16_to_float(int_vec bits) { return f16_to_float(lowest_16_bits(bits)); }
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) { return f16_to_float(load_16_bits(from)); }
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    store_16_bits(to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(TILEWISE_ISA_IS_sse2)
/// The bits of a small number are those of a smaller exponent range: scaling by 2^112 moves them, and keeps
/// subnormals right.
TILEWISE_INLINE vec f16_to_float(int_vec half) {
    const vec magnitude = float_of_bits((half & int_vec(0x7fff)) << 13) * broadcast(0x1p112F);
    return with_sign_of(with_specials(magnitude), float_of_bits(half << 16));
}
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) { return f16_to_float(load_u16(from)); }
/// Adding 1/2 rounds what will be subnormal to multiples of 2^-24.
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    const vec half = broadcast(0.5F);
    const vec size = absolute(value);
    const vec magnitude = select(size < broadcast(0x1p16F), size, broadcast(0x1p16F));
    const int_vec bits = bits_of(magnitude);
    const int_vec odd = (bits >> 13) & int_vec(1);
    const int_vec normal = (bits + int_vec(0xfff - 0x38000000) + odd) >> 13;
    const int_vec subnormal = bits_of(magnitude + half) - bits_of(half);
    const vec rounded =
        select(magnitude < broadcast(0x1p-14F), float_of_bits(subnormal), float_of_bits(normal));
    const vec number = select(value == value, rounded, float_of_bits(int_vec(0x7e00)));
    store_u16(to, bits_of(number) | ((bits_of(value) >> 16) & int_vec(0x8000)));
}
#else
TILEWISE_INLINE vec f16_to_float(uint16x4_t halves) { return vcvt_f32_f16(vreinterpret_f16_u16(halves)); }
TILEWISE_INLINE vec f16_to_float(int_vec bits) {
    return f16_to_float(vmovn_u32(vreinterpretq_u32_s32(bits)));
}
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) { return f16_to_float(vld1_u16(from)); }
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(value)));
}
#endif

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

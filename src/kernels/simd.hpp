// The vector type of the kernels: the one file that knows xsimd, its versions and what they lack.
//
// Everything is in a namespace of the instruction set, so that no inline function compiled with the flags
// of one can be linked into another.

#ifndef TILEWISE_SRC_KERNELS_SIMD_HPP
#define TILEWISE_SRC_KERNELS_SIMD_HPP

#include <cstddef>
#include <cstdint>
#include <xsimd/xsimd.hpp>

#define TILEWISE_INLINE inline __attribute__((always_inline))
#define TILEWISE_INLINE_LAMBDA __attribute__((always_inline))
/// For micro-kernels: on its own, the compiler has all registers for it and spills none.
#define TILEWISE_OUTLINE __attribute__((noinline))

namespace tilewise::kernels::TILEWISE_ISA {

#if defined(TILEWISE_ISA_IS_avx512)
using architecture = xsimd::avx512bw;
#elif defined(TILEWISE_ISA_IS_avx2)
using architecture = xsimd::fma3<xsimd::avx2>;
#elif defined(TILEWISE_ISA_IS_sse2)
using architecture = xsimd::sse2;
#elif defined(TILEWISE_ISA_IS_neon)
using architecture = xsimd::neon64;
#else
#    error "simd.hpp: no vector type for this instruction set"
#endif

using vec = xsimd::batch<float, architecture>;
using int_vec = xsimd::batch<std::int32_t, architecture>;
using mask = xsimd::batch_bool<float, architecture>;
inline constexpr int lanes = static_cast<int>(vec::size);

// Micro-tiles: keys of a score tile and columns of a value tile for 1, 2 and 3 vectors of query rows. The
// accumulators fill the registers that the query vectors and one broadcast leave.
inline constexpr int max_row_vectors = 3;
#if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_neon)
inline constexpr int key_depth[max_row_vectors + 1] = {0, 16, 8, 8};
inline constexpr int column_depth[max_row_vectors + 1] = {0, 16, 8, 8};
#else
inline constexpr int key_depth[max_row_vectors + 1] = {0, 8, 6, 4};
inline constexpr int column_depth[max_row_vectors + 1] = {0, 8, 4, 4};
#endif
// Panels of so few rows that lanes hold keys and columns of values instead: the most rows of one.
#if defined(TILEWISE_ISA_IS_avx512)
inline constexpr int narrow_rows = 12;
#else
inline constexpr int narrow_rows = lanes == 8 ? 8 : 2;
#endif
/// Vectors of columns whose sums for so many rows fit into the registers, beside a weight for each row.
inline constexpr int narrow_columns(int rows) {
#if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_neon)
    return rows <= 3 ? 8 : rows <= 4 ? 4 : 2;
#else
    return rows <= 1 ? 8 : rows <= 3 ? 4 : 2;
#endif
}
/// All depths are at most this, and all column depths divide it.
inline constexpr int max_depth = 16;

TILEWISE_INLINE vec load(const float* from) { return vec::load_aligned(from); }
TILEWISE_INLINE void store(float* to, vec value) { value.store_aligned(to); }
TILEWISE_INLINE vec load_unaligned(const float* from) { return vec::load_unaligned(from); }
TILEWISE_INLINE void store_unaligned(float* to, vec value) { value.store_unaligned(to); }
TILEWISE_INLINE vec broadcast(float value) { return vec(value); }
TILEWISE_INLINE float first_lane(vec a) {
#if defined(TILEWISE_ISA_IS_avx512)
    return _mm512_cvtss_f32(a);
#else
    return a.get(0);
#endif
}

/// Four floats, on every instruction set, for moving data only.
using four = float __attribute__((vector_size(16)));
TILEWISE_INLINE four load_four(const float* from) {
    four value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

TILEWISE_INLINE void store_four(float* to, four value) { __builtin_memcpy(to, &value, sizeof value); }

/// Reads a byte, only so that it is near from then on.
TILEWISE_INLINE void touch(const std::byte* from) {
    unsigned char value;
    __builtin_memcpy(&value, from, 1);
    asm volatile("" : : "r"(value));
}

TILEWISE_INLINE void store_transposed(four a, four b, four c, four d, float* to, std::int64_t stride) {
    const four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_four(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store_four(to + stride, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store_four(to + 2 * stride, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store_four(to + 3 * stride, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

/// to[i * to_stride + j] = from[j * from_stride + i] for i and j from 0 to 3.
TILEWISE_INLINE void transpose_4x4(const float* from, std::int64_t from_stride, float* to,
                                   std::int64_t to_stride) {
    const four a = load_four(from);
    const four b = load_four(from + from_stride);
    const four c = load_four(from + 2 * from_stride);
    const four d = load_four(from + 3 * from_stride);
    store_transposed(a, b, c, d, to, to_stride);
}

/// to[4 * i + n] = rows[n][first + i] for i and n from 0 to 3.
TILEWISE_INLINE void gather_transposed_4x4(const float* const* rows, std::int64_t first, float* to) {
    const four a = load_four(rows[0] + first);
    const four b = load_four(rows[1] + first);
    const four c = load_four(rows[2] + first);
    const four d = load_four(rows[3] + first);
    store_transposed(a, b, c, d, to, 4);
}

/// Four floats of each of lanes / 4 rows that are so many bytes apart, side by side.
TILEWISE_INLINE vec load_quads(const std::byte* row, std::int64_t row_bytes) {
    const auto quad = [=](std::int64_t n) TILEWISE_INLINE_LAMBDA {
        return reinterpret_cast<const float*>(row + n * row_bytes);
    };
#if defined(TILEWISE_ISA_IS_avx512)
    const __m256 low =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(quad(0))), _mm_loadu_ps(quad(1)), 1);
    const __m256 high =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(quad(2))), _mm_loadu_ps(quad(3)), 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
#elif defined(TILEWISE_ISA_IS_avx2)
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(quad(0))), _mm_loadu_ps(quad(1)), 1);
#else
    return load_unaligned(quad(0));
#endif
}
/// The same where rows are so many floats apart.
TILEWISE_INLINE vec load_quads(const float* row, std::int64_t stride) {
    return load_quads(reinterpret_cast<const std::byte*>(row), stride * std::int64_t{sizeof(float)});
}

#if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_avx2)
// 16 bytes of each of lanes / 8 keys that are eight apart; the signed bytes of its first and of its last
// half.
#    if defined(TILEWISE_ISA_IS_avx512)
using octets = __m256i;
TILEWISE_INLINE octets load_octets(const std::byte* row, std::int64_t eight_rows) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + eight_rows)), 1);
}
TILEWISE_INLINE void store_octets(std::byte* to, octets value) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), value);
}
TILEWISE_INLINE int_vec widen_first_bytes(octets value) {
    return _mm512_cvtepi8_epi32(_mm256_castsi256_si128(value));
}
TILEWISE_INLINE int_vec widen_last_bytes(octets value) {
    return _mm512_cvtepi8_epi32(_mm256_extracti128_si256(value, 1));
}
#        define TILEWISE_UNPACK(half, bits, a, b) _mm256_unpack##half##_epi##bits(a, b)
#    else
using octets = __m128i;
TILEWISE_INLINE octets load_octets(const std::byte* row, std::int64_t /*eight_rows*/) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
}
TILEWISE_INLINE void store_octets(std::byte* to, octets value) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), value);
}
TILEWISE_INLINE int_vec widen_first_bytes(octets value) { return _mm256_cvtepi8_epi32(value); }
TILEWISE_INLINE int_vec widen_last_bytes(octets value) {
    return _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(value, value));
}
#        define TILEWISE_UNPACK(half, bits, a, b) _mm_unpack##half##_epi##bits(a, b)
#    endif
/// Interleaves units of so many bits of the low, and of the high halves of each 16 bytes of two rows.
template <int Bits>
TILEWISE_INLINE void interleave(octets a, octets b, octets& low, octets& high) {
    if constexpr (Bits == 8) {
        low = TILEWISE_UNPACK(lo, 8, a, b);
        high = TILEWISE_UNPACK(hi, 8, a, b);
    } else if constexpr (Bits == 16) {
        low = TILEWISE_UNPACK(lo, 16, a, b);
        high = TILEWISE_UNPACK(hi, 16, a, b);
    } else if constexpr (Bits == 32) {
        low = TILEWISE_UNPACK(lo, 32, a, b);
        high = TILEWISE_UNPACK(hi, 32, a, b);
    } else {
        low = TILEWISE_UNPACK(lo, 64, a, b);
        high = TILEWISE_UNPACK(hi, 64, a, b);
    }
}
#    undef TILEWISE_UNPACK

/// Rows n of 16 bytes of keys n, n + 8 become columns: one, or two of single bytes, of all keys in order.
template <int Bytes>
TILEWISE_INLINE void transpose_octets(octets (&rows)[8]) {
    octets some[8];
#    pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
        interleave<8 * Bytes>(rows[2 * n], rows[2 * n + 1], some[2 * n], some[2 * n + 1]);
    }
#    pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
        interleave<16 * Bytes>(some[4 * n], some[4 * n + 2], rows[4 * n], rows[4 * n + 1]);
        interleave<16 * Bytes>(some[4 * n + 1], some[4 * n + 3], rows[4 * n + 2], rows[4 * n + 3]);
    }
#    pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
        interleave<32 * Bytes>(rows[n], rows[n + 4], some[2 * n], some[2 * n + 1]);
    }
#    pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) {
#    if defined(TILEWISE_ISA_IS_avx512)
        rows[n] = Bytes == 1 ? _mm256_permute4x64_epi64(some[n], _MM_SHUFFLE(3, 1, 2, 0)) : some[n];
#    else
        rows[n] = some[n];
#    endif
    }
}
#endif

/// Transposes each 4 x 4 square of four vectors of quads.
TILEWISE_INLINE void transpose_quads(vec (&quads)[4]) {
#if defined(TILEWISE_ISA_IS_avx512)
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(quads[0], quads[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(quads[0], quads[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(quads[2], quads[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(quads[2], quads[3]));
    quads[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    quads[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    quads[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    quads[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
#elif defined(TILEWISE_ISA_IS_avx2)
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(quads[0], quads[1]));
    const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(quads[0], quads[1]));
    const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(quads[2], quads[3]));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(quads[2], quads[3]));
    quads[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    quads[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    quads[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    quads[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
#else
    alignas(16) float columns[16];
    store_transposed(four(quads[0].data), four(quads[1].data), four(quads[2].data), four(quads[3].data),
                     columns, 4);
    for (int n = 0; n < 4; ++n) { quads[n] = load(columns + 4 * n); }
#endif
}

/// a / b, correctly rounded; xsimd's own is an approximation on NEON.
#if defined(TILEWISE_ISA_IS_neon)
TILEWISE_INLINE vec divide(vec a, vec b) { return vdivq_f32(a, b); }
#else
TILEWISE_INLINE vec divide(vec a, vec b) { return a / b; }
#endif

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

/// The larger; whichever of them, if one is NaN.
TILEWISE_INLINE vec maximum(vec a, vec b) { return xsimd::max(a, b); }
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
TILEWISE_INLINE vec ceiling(vec a) { return xsimd::ceil(a); }
TILEWISE_INLINE vec nearest(vec a) { return xsimd::nearbyint(a); }
TILEWISE_INLINE vec absolute(vec a) { return xsimd::abs(a); }
/// The magnitude of one value with the sign of another.
TILEWISE_INLINE vec with_sign_of(vec magnitude, vec sign) { return magnitude | (sign & vec(-0.0F)); }
TILEWISE_INLINE vec select(mask condition, vec yes, vec no) { return xsimd::select(condition, yes, no); }
TILEWISE_INLINE bool any(mask condition) { return xsimd::any(condition); }
/// Not value != value: xsimd's is false for NaN.
TILEWISE_INLINE mask is_nan(vec value) { return !(value == value); }

// xsimd's bitwise_cast takes the type of the batch in version 8, and that of its element later.
template <class Batch>
TILEWISE_INLINE Batch reinterpret(xsimd::batch<float, architecture> from) {
#if XSIMD_VERSION_MAJOR < 9
    return xsimd::bitwise_cast<Batch>(from);
#else
    return xsimd::bitwise_cast<typename Batch::value_type>(from);
#endif
}
TILEWISE_INLINE vec reinterpret_as_float(int_vec from) {
#if XSIMD_VERSION_MAJOR < 9
    return xsimd::bitwise_cast<vec>(from);
#else
    return xsimd::bitwise_cast<float>(from);
#endif
}
TILEWISE_INLINE int_vec bits_of(vec value) { return reinterpret<int_vec>(value); }
TILEWISE_INLINE vec float_of_bits(int_vec value) { return reinterpret_as_float(value); }
TILEWISE_INLINE vec to_float(int_vec value) { return xsimd::batch_cast<float>(value); }

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
TILEWISE_INLINE void store_u16(std::uint16_t* to, int_vec value) {
    const __m256i low = _mm256_and_si256(value, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), _MM_SHUFFLE(3, 1, 2, 0));
    store_16_bits(to, _mm256_castsi256_si128(packed));
}
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

/// The lowest four bits of each lane, minus 8.
TILEWISE_INLINE vec nibble_minus_8(int_vec bits) {
#if defined(TILEWISE_ISA_IS_avx512)
    const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_permutexvar_ps(bits, table);  // looks at four bits of an index
#else
    return to_float((bits & int_vec(15)) - int_vec(8));
#endif
}

/// For formats with 5 exponent bits, whose infinity and NaN come out as 2^16 and more where they are
/// converted as numbers: gives those all exponent bits.
TILEWISE_INLINE vec with_specials(vec magnitude) {
    const vec special = float_of_bits(bits_of(magnitude) | int_vec(0x7f800000));
    return select(magnitude < broadcast(0x1p16F), magnitude, special);
}

// binary16 to binary32, exactly, and back, rounded to the nearest even; NaN must be the canonical one.
#if defined(TILEWISE_ISA_IS_avx512)
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) { return _mm512_cvtph_ps(load_16_bits(from)); }
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    store_16_bits(to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(TILEWISE_ISA_IS_avx2)
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) { return _mm256_cvtph_ps(load_16_bits(from)); }
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    store_16_bits(to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(TILEWISE_ISA_IS_sse2)
/// The bits of a small number are those of a smaller exponent range: scaling by 2^112 moves them, and keeps
/// subnormals right.
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) {
    const int_vec half = load_u16(from);
    const vec magnitude = float_of_bits((half & int_vec(0x7fff)) << 13) * broadcast(0x1p112F);
    return with_sign_of(with_specials(magnitude), float_of_bits(half << 16));
}
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
TILEWISE_INLINE vec load_f16(const std::uint16_t* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}
TILEWISE_INLINE void store_f16(std::uint16_t* to, vec value) {
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(value)));
}
#endif

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

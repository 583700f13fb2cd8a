// The vector type of the kernels: the one file that knows xsimd, its versions and what they lack. (Where
// `real` is double, simd_f64.hpp has the functions that depend on it.)
//
// Everything is in a namespace of the instruction set, so that no inline function compiled with the flags
// of one can be linked into another.

#ifndef TILEWISE_SRC_KERNELS_SIMD_HPP
#define TILEWISE_SRC_KERNELS_SIMD_HPP

#include <cstddef>
#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "../contract.hpp"

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

// What this compilation of the kernels computes with: the type of all sums, an integer of its size, and
// whether their products are of pairs of bf16 (products.hpp).
#if defined(TILEWISE_REAL_IS_DOUBLE)
using real = double;
using integer = std::int64_t;
inline constexpr bool in_pairs = false;
#    define TILEWISE_NARROW_PANELS 0
#else
using real = float;
using integer = std::int32_t;
#    if defined(TILEWISE_BF16_PAIRS)
inline constexpr bool in_pairs = true;
#    else
inline constexpr bool in_pairs = false;
#    endif
#    define TILEWISE_NARROW_PANELS 1
#endif
using contract = tilewise::contract::constants<real>;

using vec = xsimd::batch<real, architecture>;
using int_vec = xsimd::batch<integer, architecture>;
using mask = xsimd::batch_bool<real, architecture>;
using byte_vec = xsimd::batch<std::uint8_t, architecture>;
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
/// Rows are moved four at a time: a panel has a multiple of so many vectors, and at most so many.
inline constexpr int vector_multiple = lanes < 4 ? 4 / lanes : 1;
inline constexpr int panel_vectors = max_row_vectors / vector_multiple * vector_multiple;
// Panels of so few rows that lanes hold keys and columns of values instead: the most rows of one.
#if !TILEWISE_NARROW_PANELS
inline constexpr int narrow_rows = 0;
#elif defined(TILEWISE_ISA_IS_avx512)
inline constexpr int narrow_rows = 12;
#else
inline constexpr int narrow_rows = lanes == 8 ? 8 : 2;
#endif
/// Vectors of columns whose sums for so many rows fit into the registers, beside a weight for each row.
inline constexpr int narrow_columns(int rows) {
#if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_neon)
    return rows <= 3 ? 8 : rows <= 4 ? 7 : 2;
#else
    return rows <= 1 ? 8 : rows <= 3 ? 4 : 2;
#endif
}
/// All depths are at most this, and all column depths divide it.
inline constexpr int max_depth = 16;

TILEWISE_INLINE vec load(const real* from) { return vec::load_aligned(from); }
TILEWISE_INLINE void store(real* to, vec value) { value.store_aligned(to); }
TILEWISE_INLINE vec load_unaligned(const real* from) { return vec::load_unaligned(from); }
TILEWISE_INLINE void store_unaligned(real* to, vec value) { value.store_unaligned(to); }
TILEWISE_INLINE vec broadcast(real value) { return vec(value); }

/// Four numbers, on every instruction set, for moving data only.
using four = real __attribute__((vector_size(4 * sizeof(real))));
TILEWISE_INLINE four load_four(const real* from) {
    four value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

TILEWISE_INLINE void store_four(real* to, four value) { __builtin_memcpy(to, &value, sizeof value); }

/// Reads a byte, only so that it is near from then on.
TILEWISE_INLINE void touch(const void* from) {
    unsigned char value;
    __builtin_memcpy(&value, from, 1);
    asm volatile("" : : "r"(value));
}

/// A number of which the compiler knows nothing more: it computes addresses from it where they are used, in
/// place of keeping a register for each.
TILEWISE_INLINE std::int64_t opaque(std::int64_t number) {
    asm("" : "+r"(number));
    return number;
}

TILEWISE_INLINE void store_transposed(four a, four b, four c, four d, real* to, std::int64_t stride) {
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
TILEWISE_INLINE void transpose_4x4(const real* from, std::int64_t from_stride, real* to,
                                   std::int64_t to_stride) {
    const four a = load_four(from);
    const four b = load_four(from + from_stride);
    const four c = load_four(from + 2 * from_stride);
    const four d = load_four(from + 3 * from_stride);
    store_transposed(a, b, c, d, to, to_stride);
}

#if TILEWISE_NARROW_PANELS
TILEWISE_INLINE float first_lane(vec a) {
#    if defined(TILEWISE_ISA_IS_avx512)
    return _mm512_cvtss_f32(a);
#    else
    return a.get(0);
#    endif
}

/// Four floats of each of lanes / 4 rows, side by side: from quad(0), quad(1), ...
template <class Quad>
TILEWISE_INLINE vec gather_quads(Quad quad) {
#    if defined(TILEWISE_ISA_IS_avx512)
    const __m256 low =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(quad(0))), _mm_loadu_ps(quad(1)), 1);
    const __m256 high =
        _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(quad(2))), _mm_loadu_ps(quad(3)), 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
#    elif defined(TILEWISE_ISA_IS_avx2)
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(quad(0))), _mm_loadu_ps(quad(1)), 1);
#    else
    return load_unaligned(quad(0));
#    endif
}
/// The same of rows that are so many bytes apart.
TILEWISE_INLINE vec load_quads(const std::byte* row, std::int64_t row_bytes) {
    return gather_quads([=](std::int64_t n) TILEWISE_INLINE_LAMBDA {
        return reinterpret_cast<const float*>(row + n * row_bytes);
    });
}
/// The same where rows are so many floats apart.
TILEWISE_INLINE vec load_quads(const float* row, std::int64_t stride) {
    return load_quads(reinterpret_cast<const std::byte*>(row), stride * std::int64_t{sizeof(float)});
}

#    if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_avx2)
// 16 bytes of each of lanes / 8 keys that are eight apart.
#        if defined(TILEWISE_ISA_IS_avx512)
using octets = __m256i;
TILEWISE_INLINE octets load_octets(const std::byte* row, std::int64_t eight_rows) {
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row))),
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + eight_rows)), 1);
}
#            define TILEWISE_UNPACK(half, bits, a, b) _mm256_unpack##half##_epi##bits(a, b)
#        else
using octets = __m128i;
TILEWISE_INLINE octets load_octets(const std::byte* row, std::int64_t /*eight_rows*/) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
}
#            define TILEWISE_UNPACK(half, bits, a, b) _mm_unpack##half##_epi##bits(a, b)
#        endif

/// Eight 16-bit elements each of keys n, n + 8 become columns of all keys.
TILEWISE_INLINE void transpose_octets(octets (&rows)[8]) {
    octets some[8];
#        pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
        some[2 * n] = TILEWISE_UNPACK(lo, 16, rows[2 * n], rows[2 * n + 1]);
        some[2 * n + 1] = TILEWISE_UNPACK(hi, 16, rows[2 * n], rows[2 * n + 1]);
    }
#        pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
        const int from = n / 2 * 4 + n % 2;
        rows[2 * n] = TILEWISE_UNPACK(lo, 32, some[from], some[from + 2]);
        rows[2 * n + 1] = TILEWISE_UNPACK(hi, 32, some[from], some[from + 2]);
    }
#        pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
        some[2 * n] = TILEWISE_UNPACK(lo, 64, rows[n], rows[n + 4]);
        some[2 * n + 1] = TILEWISE_UNPACK(hi, 64, rows[n], rows[n + 4]);
    }
#        pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) { rows[n] = some[n]; }
}
#        undef TILEWISE_UNPACK
#    endif

/// Transposes each 4 x 4 square of four vectors of quads.
TILEWISE_INLINE void transpose_quads(vec (&quads)[4]) {
#    if defined(TILEWISE_ISA_IS_avx512)
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(quads[0], quads[1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(quads[0], quads[1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(quads[2], quads[3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(quads[2], quads[3]));
    quads[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    quads[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    quads[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    quads[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
#    elif defined(TILEWISE_ISA_IS_avx2)
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(quads[0], quads[1]));
    const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(quads[0], quads[1]));
    const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(quads[2], quads[3]));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(quads[2], quads[3]));
    quads[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    quads[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    quads[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    quads[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
#    else
    alignas(16) float columns[16];
    store_transposed(four(quads[0].data), four(quads[1].data), four(quads[2].data), four(quads[3].data),
                     columns, 4);
    for (int n = 0; n < 4; ++n) { quads[n] = load(columns + 4 * n); }
#    endif
}

/// columns[n] = elements first + n of as many rows as there are lanes.
TILEWISE_INLINE void gather_columns(const float* const* rows, std::int64_t first, vec (&columns)[4]) {
    for (int n = 0; n < 4; ++n) {
        columns[n] = gather_quads([=](std::int64_t quad)
                                      TILEWISE_INLINE_LAMBDA { return rows[n + 4 * quad] + first; });
    }
    transpose_quads(columns);
}

#else

TILEWISE_INLINE void gather_columns(const real* const* rows, std::int64_t first, vec (&columns)[4]) {
    for (int n = 0; n < 4; ++n) {
        alignas(64) real column[lanes];
        for (int r = 0; r < lanes; ++r) { column[r] = rows[r][first + n]; }
        columns[n] = load(column);
    }
}

#endif

/// a / b, correctly rounded; xsimd's own is an approximation on NEON.
#if defined(TILEWISE_ISA_IS_neon) && defined(TILEWISE_REAL_IS_DOUBLE)
TILEWISE_INLINE vec divide(vec a, vec b) { return vdivq_f64(a, b); }
#elif defined(TILEWISE_ISA_IS_neon)
TILEWISE_INLINE vec divide(vec a, vec b) { return vdivq_f32(a, b); }
#else
TILEWISE_INLINE vec divide(vec a, vec b) { return a / b; }
#endif

/// The larger; whichever of them, if one is NaN.
TILEWISE_INLINE vec maximum(vec a, vec b) { return xsimd::max(a, b); }
TILEWISE_INLINE vec nearest(vec a) { return xsimd::nearbyint(a); }
TILEWISE_INLINE vec absolute(vec a) { return xsimd::abs(a); }
/// The magnitude of one value with the sign of another.
TILEWISE_INLINE vec with_sign_of(vec magnitude, vec sign) { return magnitude | (sign & vec(-0.0F)); }
TILEWISE_INLINE vec select(mask condition, vec yes, vec no) { return xsimd::select(condition, yes, no); }
TILEWISE_INLINE bool any(mask condition) { return xsimd::any(condition); }
TILEWISE_INLINE bool all(mask condition) { return xsimd::all(condition); }

// Bytes, as many as a vector has room for.
TILEWISE_INLINE byte_vec broadcast_byte(std::uint8_t value) { return byte_vec(value); }
TILEWISE_INLINE byte_vec load_bytes(const std::uint8_t* from) { return byte_vec::load_unaligned(from); }
TILEWISE_INLINE byte_vec smallest_bytes(byte_vec a, byte_vec b) { return xsimd::min(a, b); }
TILEWISE_INLINE bool any_zero(byte_vec bytes) { return xsimd::any(bytes == broadcast_byte(0)); }
TILEWISE_INLINE bool any_nonzero(byte_vec bytes) { return xsimd::any(bytes != broadcast_byte(0)); }

#if defined(TILEWISE_ISA_IS_sse2) && defined(TILEWISE_REAL_IS_DOUBLE)
/// xsimd's own goes by way of 64-bit integers, which have no infinity.
TILEWISE_INLINE vec ceiling(vec a) {
    const vec all_whole = with_sign_of(vec(0x1p52), a);  // numbers from here on have no fraction
    const vec near = (a + all_whole) - all_whole;
    const vec above = select(near < a, near + vec(1.0), near);
    return select(absolute(a) < absolute(all_whole), with_sign_of(absolute(above), a), a);
}
#else
TILEWISE_INLINE vec ceiling(vec a) { return xsimd::ceil(a); }
#endif
/// Not value != value: xsimd's is false for NaN.
TILEWISE_INLINE mask is_nan(vec value) { return !(value == value); }

// xsimd's bitwise_cast takes the type of the batch in version 8, and that of its element later.
template <class Batch>
TILEWISE_INLINE Batch reinterpret(vec from) {
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
    return xsimd::bitwise_cast<real>(from);
#endif
}
TILEWISE_INLINE int_vec bits_of(vec value) { return reinterpret<int_vec>(value); }
TILEWISE_INLINE vec float_of_bits(int_vec value) { return reinterpret_as_float(value); }

}  // namespace tilewise::kernels::TILEWISE_ISA

#if defined(TILEWISE_REAL_IS_DOUBLE)
#    include "simd_f64.hpp"
#else
#    include "simd_f32.hpp"
#endif

#endif

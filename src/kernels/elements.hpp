// How elements are stored, and rows of them to real numbers and back. A new storage type is one decoder here,
// and one row of the table.

#ifndef TILEWISE_SRC_KERNELS_ELEMENTS_HPP
#define TILEWISE_SRC_KERNELS_ELEMENTS_HPP

#include <cstddef>
#include <cstdint>

#include <tilewise/element_type.hpp>

#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

// Each type converts `lanes` elements at a time: of a row; or with decode_part(), one of each lane, the n-th
// of those in a word. What is encoded is a result: a NaN is the canonical one.

#if defined(TILEWISE_REAL_IS_DOUBLE)
inline constexpr element_type real_type = element_type::f64;

struct f64_elements {
    using stored = double;
    static TILEWISE_INLINE vec decode(const stored* from) { return load_unaligned(from); }
    static TILEWISE_INLINE void encode(vec value, stored* to) { store_unaligned(to, value); }
};

struct f32_elements {
    using stored = float;
    static TILEWISE_INLINE vec decode(const stored* from) { return load_f32(from); }
};
#else
inline constexpr element_type real_type = element_type::f32;

struct f32_elements {
    using stored = float;
    static TILEWISE_INLINE vec decode(const stored* from) { return vec::load_unaligned(from); }
    static TILEWISE_INLINE vec decode_part(int_vec word, std::int64_t /*n*/) { return float_of_bits(word); }
    static TILEWISE_INLINE void encode(vec value, stored* to) { value.store_unaligned(to); }
};

/// +0 for what rounds to a zero, of either sign: half of the smallest number is a tie, and 0 is even.
TILEWISE_INLINE vec without_negative_zero(vec value, float smallest) {
    return select(absolute(value) <= broadcast(smallest / 2), broadcast(0.0F), value);
}

struct f16_elements {
    using stored = std::uint16_t;
    static TILEWISE_INLINE vec decode(const stored* from) { return load_f16(from); }
    static TILEWISE_INLINE vec decode_part(int_vec word, std::int64_t n) {
        return f16_to_float(n == 0 ? word : word >> 16);
    }
    static TILEWISE_INLINE void encode(vec value, stored* to) {
        store_f16(to, without_negative_zero(value, 0x1p-24F));
    }
};

struct bf16_elements {
    using stored = std::uint16_t;
    static TILEWISE_INLINE vec decode(const stored* from) { return float_of_bits(load_u16(from) << 16); }
#    if defined(TILEWISE_ISA_IS_avx512) && !defined(TILEWISE_BF16_PAIRS)
    /// Twice as many as decode() has: those at even places, and those at odd ones. That takes fewer
    /// operations than widening. (On AVX2 it gained nothing that could be measured.)
    static TILEWISE_INLINE void decode_spread(const std::byte* from, vec (&values)[2]) {
        const int_vec words = bits_of(load_unaligned(reinterpret_cast<const float*>(from)));
        for (int n = 0; n < 2; ++n) { values[n] = decode_part(words, n); }
    }
    /// From that order to the order of memory.
    static TILEWISE_INLINE void gather(vec (&values)[2]) { interleave(values); }
#    endif
    static TILEWISE_INLINE vec decode_part(int_vec word, std::int64_t n) {
        return float_of_bits(n == 0 ? word << 16 : word & int_vec(static_cast<std::int32_t>(0xffff0000U)));
    }
    static TILEWISE_INLINE void encode(vec value, stored* to) {
        const int_vec bits = bits_of(without_negative_zero(value, 0x1p-133F));
        const int_vec odd = (bits >> 16) & int_vec(1);
        store_u16(to, (bits + int_vec(0x7fff) + odd) >> 16);
    }
};

#endif

/// Converts a row of `count` elements, `stride` apart. `to` is aligned, with room for whole vectors.
template <class Elements>
void decode_row(const void* row, std::int64_t stride, std::int64_t count, real* to) {
    using stored = typename Elements::stored;
    const auto* const from = static_cast<const stored*>(row);
    std::int64_t i = 0;
    if (stride == 1) {
        for (; i + lanes <= count; i += lanes) { store(to + i, Elements::decode(from + i)); }
    }
    for (; i < count; i += lanes) {
        stored some[lanes] = {};
        for (std::int64_t n = 0; n < lanes && i + n < count; ++n) { some[n] = from[(i + n) * stride]; }
        store(to + i, Elements::decode(some));
    }
}

/// The same the other way; `from` is aligned, and whole vectors of it are read.
template <class Elements>
void encode_row(const real* from, std::int64_t count, void* row, std::int64_t stride) {
    using stored = typename Elements::stored;
    auto* const to = static_cast<stored*>(row);
    std::int64_t i = 0;
    if (stride == 1) {
        for (; i + lanes <= count; i += lanes) { Elements::encode(load(from + i), to + i); }
    }
    for (; i < count; i += lanes) {
        stored some[lanes];
        Elements::encode(load(from + i), some);
        for (std::int64_t n = 0; n < lanes && i + n < count; ++n) { to[(i + n) * stride] = some[n]; }
    }
}

// Quantised blocks along a row: decoded a whole block at a time, side by side, and never encoded.

inline constexpr std::int64_t block_values = 32;

#if !defined(TILEWISE_REAL_IS_DOUBLE)
/// The scale of a block, in all lanes.
TILEWISE_INLINE vec block_scale(const std::byte* block) {
    std::uint16_t scale[lanes];
    __builtin_memcpy(scale, block, sizeof scale[0]);
    for (int n = 1; n < lanes; ++n) { scale[n] = scale[0]; }
    return load_f16(scale);
}

struct q8_0_elements {
    static constexpr std::int64_t block_bytes = 34;
    /// Values i .. of a block.
    static TILEWISE_INLINE vec decode(const std::byte* block, std::int64_t i, vec scale) {
        return to_float(load_i8(reinterpret_cast<const std::int8_t*>(block + 2) + i)) * scale;
    }
};

struct q4_0_elements {
    static constexpr std::int64_t block_bytes = 18;
    /// The second half of the values are in the high halves of the bytes.
    static TILEWISE_INLINE vec decode(const std::byte* block, std::int64_t i, vec scale) {
        constexpr std::int64_t half = block_values / 2;
        const int_vec both = load_i8(reinterpret_cast<const std::int8_t*>(block + 2) + i % half);
        return scaled_nibble(i < half ? both : both >> 4, scale);
    }
};

template <class Elements>
TILEWISE_INLINE void decode_block(const std::byte* block, float* to) {
    const vec scale = block_scale(block);
#    pragma GCC unroll 8
    for (std::int64_t i = 0; i < block_values; i += lanes) {
        store(to + i, Elements::decode(block, i, scale));
    }
}

/// As decode_row, for `count` elements that are whole blocks.
template <class Elements>
void decode_blocks(const void* row, std::int64_t /*stride*/, std::int64_t count, float* to) {
    const auto* block = static_cast<const std::byte*>(row);
    for (std::int64_t i = 0; i < count; i += block_values, block += Elements::block_bytes) {
        decode_block<Elements>(block, to + i);
    }
}

/// Numbers without their scale.
struct i8_elements {
    using stored = std::int8_t;
    static TILEWISE_INLINE vec decode(const stored* from) { return to_float(load_i8(from)); }
    static TILEWISE_INLINE vec decode_part(int_vec word, std::int64_t n) { return signed_byte(word, n); }
};

/// Byte n of each word, sign-extended.
TILEWISE_INLINE int_vec byte_of_word(int_vec word, std::int64_t n) {
    return (word << static_cast<int>(24 - 8 * n)) >> 24;
}

/// FP8: the bits of a small number are those of a smaller exponent range, and scaling moves them.
struct e4m3_elements {
    using stored = std::int8_t;
    static TILEWISE_INLINE vec decode(const stored* from) { return decode(load_i8(from)); }
    static TILEWISE_INLINE vec decode_part(int_vec word, std::int64_t n) {
        return decode(byte_of_word(word, n));
    }
    static TILEWISE_INLINE vec decode(int_vec bits) {
        const vec magnitude = float_of_bits((bits & int_vec(0x7f)) << 20) * broadcast(0x1p120F);
        const vec number = select(magnitude < broadcast(480.0F), magnitude, broadcast(__builtin_nanf("")));
        return with_sign_of(number, float_of_bits(bits));
    }
};
struct e5m2_elements {
    using stored = std::int8_t;
    static TILEWISE_INLINE vec decode(const stored* from) { return decode(load_i8(from)); }
    static TILEWISE_INLINE vec decode_part(int_vec word, std::int64_t n) {
        return decode(byte_of_word(word, n));
    }
    static TILEWISE_INLINE vec decode(int_vec bits) {
        const vec magnitude = float_of_bits((bits & int_vec(0x7f)) << 21) * broadcast(0x1p112F);
        return with_sign_of(with_specials(magnitude), float_of_bits(bits));
    }
};

#endif

template <class Elements>
concept in_blocks_of_values = requires {
    Elements::block_bytes;
};

/// Numbers that are multiplied by a scale of their own kind: per token, or per channel.
template <class Elements>
inline constexpr bool is_scaled = false;
#if !defined(TILEWISE_REAL_IS_DOUBLE)
template <>
inline constexpr bool is_scaled<i8_elements> = true;
template <>
inline constexpr bool is_scaled<e4m3_elements> = true;
template <>
inline constexpr bool is_scaled<e5m2_elements> = true;

/// Elements i .. of a row whose elements are side by side, without a scale of their own kind.
template <class Elements>
TILEWISE_INLINE vec elements_at(const std::byte* row, std::int64_t i) {
    if constexpr (in_blocks_of_values<Elements>) {
        const std::byte* const block = row + i / block_values * Elements::block_bytes;
        return Elements::decode(block, i % block_values, block_scale(block));
    } else {
        return Elements::decode(reinterpret_cast<const typename Elements::stored*>(row) + i);
    }
}

template <class Elements>
concept is_spread = requires {
    &Elements::decode_spread;
};
/// Vectors that are decoded at once.
template <class Elements>
inline constexpr int vectors_spread = is_spread<Elements> ? 2 : 1;

/// Bytes of a row before element i; of blocks, about.
template <class Elements>
TILEWISE_INLINE constexpr std::int64_t bytes_before(std::int64_t i) {
    if constexpr (in_blocks_of_values<Elements>) {
        return i * Elements::block_bytes / block_values;
    } else {
        return i * static_cast<std::int64_t>(sizeof(typename Elements::stored));
    }
}

#endif

struct storage {
    element_type type;
    std::int64_t block_elements;
    std::int64_t block_bytes;
    void (*decode)(const void* row, std::int64_t stride, std::int64_t count, real* to);
    void (*encode)(const real* from, std::int64_t count, void* row, std::int64_t stride);
};

template <class Elements>
constexpr storage single(element_type type) {
    return {type, 1, sizeof(typename Elements::stored), decode_row<Elements>, encode_row<Elements>};
}
template <class Elements>
constexpr storage read_only(element_type type) {
    return {type, 1, sizeof(typename Elements::stored), decode_row<Elements>, nullptr};
}
#if defined(TILEWISE_REAL_IS_DOUBLE)
constexpr storage storages[] = {single<f64_elements>(element_type::f64),
                                read_only<f32_elements>(element_type::f32)};
#else
template <class Elements>
constexpr storage in_blocks(element_type type) {
    return {type, block_values, Elements::block_bytes, decode_blocks<Elements>, nullptr};
}

constexpr storage storages[] = {
    single<f32_elements>(element_type::f32),      single<f16_elements>(element_type::f16),
    single<bf16_elements>(element_type::bf16),    in_blocks<q8_0_elements>(element_type::q8_0),
    in_blocks<q4_0_elements>(element_type::q4_0), read_only<i8_elements>(element_type::i8),
    read_only<e4m3_elements>(element_type::e4m3), read_only<e5m2_elements>(element_type::e5m2)};
#endif

/// Another table, for the kernels that read elements themselves, has the same order.
inline std::int64_t place_in(const storage& type) { return &type - storages; }

inline const storage& storage_of(element_type type) {
    const storage* found = storages;
    while (found->type != type) { ++found; }
    return *found;
}

/// Bytes that so many elements take: whole blocks.
TILEWISE_INLINE std::int64_t bytes_of(std::int64_t elements, const storage& type) {
    return elements / type.block_elements * type.block_bytes;
}

/// Where element `index` of an array is; the first of a block.
TILEWISE_INLINE const std::byte* element_at(const void* data, std::int64_t index, const storage& type) {
    return static_cast<const std::byte*>(data) + bytes_of(index, type);
}
TILEWISE_INLINE std::byte* element_at(void* data, std::int64_t index, const storage& type) {
    return static_cast<std::byte*>(data) + bytes_of(index, type);
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

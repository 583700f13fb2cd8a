// Columns of keys: one element of `lanes` successive keys, keys in lanes, from rows as they are stored. The
// bytes are transposed before they are converted: there are fewer of them.

#ifndef TILEWISE_SRC_KERNELS_COLUMNS_HPP
#define TILEWISE_SRC_KERNELS_COLUMNS_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "elements.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Rows that are evenly spaced, of `lanes` keys.
struct key_rows {
    const std::byte* data;
    std::int64_t row_bytes;
};

#if TILEWISE_NARROW_PANELS
/// Calls use(i, column) for `depth` columns, i ascending from `first`, a multiple of depth.
template <class Elements>
struct key_columns;

/// Four columns at a time of four-byte elements; of any others where a register holds four keys.
template <class Elements>
struct quad_columns {
    static constexpr std::int64_t depth = 4;
    using stored = typename Elements::stored;
    template <class Use>
    static TILEWISE_INLINE void visit(const key_rows& keys, std::int64_t first, Use use) {
        vec quads[4];
#    pragma GCC unroll 4
        for (int n = 0; n < 4; ++n) { quads[n] = load(keys, n, first); }
        transpose_quads(quads);
#    pragma GCC unroll 4
        for (int n = 0; n < 4; ++n) { use(first + n, quads[n]); }
    }

private:
    static TILEWISE_INLINE vec load(const key_rows& keys, std::int64_t key, std::int64_t first) {
        const std::byte* const row =
            keys.data + key * keys.row_bytes + first * static_cast<std::int64_t>(sizeof(stored));
        if constexpr (std::is_same_v<stored, float>) {
            return load_quads(row, 4 * keys.row_bytes);
        } else {
            return Elements::decode(reinterpret_cast<const stored*>(row));
        }
    }
};

/// Blocks, where a register holds four keys: converted first.
template <class Elements>
struct converted_columns {
    static constexpr std::int64_t depth = block_values;
    template <class Use>
    static TILEWISE_INLINE void visit(const key_rows& keys, std::int64_t first, Use use) {
        alignas(64) float rows[lanes][depth];
        const std::byte* const block = keys.data + first / block_values * Elements::block_bytes;
        for (int n = 0; n < lanes; ++n) { decode_block<Elements>(block + n * keys.row_bytes, rows[n]); }
        for (std::int64_t i = 0; i < depth; i += 4) {
            vec quads[4];
            for (int n = 0; n < 4; ++n) { quads[n] = load_quads(rows[n] + i, 4 * depth); }
            transpose_quads(quads);
            for (int n = 0; n < 4; ++n) { use(first + i + n, quads[n]); }
        }
    }
};

#    if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_avx2)
/// 16 bytes of each of `lanes` keys, transposed: the columns of so many `Bytes`-byte elements.
template <int Bytes>
struct transposed_bytes {
    static constexpr std::int64_t depth = 16 / Bytes;
    octets rows[8];
    TILEWISE_INLINE transposed_bytes(const std::byte* first_key, std::int64_t row_bytes) {
#        pragma GCC unroll 8
        for (int n = 0; n < 8; ++n) { rows[n] = load_octets(first_key + n * row_bytes, 8 * row_bytes); }
        transpose_octets<Bytes>(rows);
    }
    /// Of single bytes: column n, sign-extended.
    [[nodiscard]] TILEWISE_INLINE int_vec bytes(std::int64_t n) const {
        return n % 2 == 0 ? widen_first_bytes(rows[n / 2]) : widen_last_bytes(rows[n / 2]);
    }
};

template <class Elements>
struct short_columns {
    using stored = typename Elements::stored;
    static constexpr std::int64_t depth = transposed_bytes<sizeof(stored)>::depth;
    template <class Use>
    static TILEWISE_INLINE void visit(const key_rows& keys, std::int64_t first, Use use) {
        const transposed_bytes<sizeof(stored)> some(
            keys.data + first * static_cast<std::int64_t>(sizeof(stored)), keys.row_bytes);
#        pragma GCC unroll 16
        for (std::int64_t n = 0; n < depth; ++n) {
            if constexpr (sizeof(stored) == 1) {
                use(first + n, Elements::decode(some.bytes(n)));
            } else {
                alignas(64) stored column[lanes];
                store_octets(reinterpret_cast<std::byte*>(column), some.rows[n]);
                use(first + n, Elements::decode(column));
            }
        }
    }
};

/// The scale of the block that starts each key's row here.
TILEWISE_INLINE vec block_scales(const std::byte* first_key, std::int64_t row_bytes) {
    alignas(64) std::uint16_t scales[lanes];
#        pragma GCC unroll 16
    for (int n = 0; n < lanes; ++n) { __builtin_memcpy(scales + n, first_key + n * row_bytes, 2); }
    return load_f16(scales);
}

struct q8_0_columns {
    static constexpr std::int64_t depth = block_values;
    template <class Use>
    static TILEWISE_INLINE void visit(const key_rows& keys, std::int64_t first, Use use) {
        const std::byte* const block = keys.data + first / block_values * q8_0_elements::block_bytes;
        const vec scale = block_scales(block, keys.row_bytes);
        for (std::int64_t half = 0; half < depth; half += 16) {
            const transposed_bytes<1> some(block + 2 + half, keys.row_bytes);
#        pragma GCC unroll 16
            for (std::int64_t n = 0; n < 16; ++n) { use(first + half + n, to_float(some.bytes(n)) * scale); }
        }
    }
};

struct q4_0_columns {
    static constexpr std::int64_t depth = block_values;
    template <class Use>
    static TILEWISE_INLINE void visit(const key_rows& keys, std::int64_t first, Use use) {
        const std::byte* const block = keys.data + first / block_values * q4_0_elements::block_bytes;
        const vec scale = block_scales(block, keys.row_bytes);
        const transposed_bytes<1> both(block + 2, keys.row_bytes);
#        pragma GCC unroll 16
        for (std::int64_t n = 0; n < 16; ++n) { use(first + n, q4_0_elements::value(both.bytes(n), scale)); }
#        pragma GCC unroll 16
        for (std::int64_t n = 0; n < 16; ++n) {
            use(first + 16 + n, q4_0_elements::value(both.bytes(n) >> 4, scale));
        }
    }
};

template <class Elements>
struct key_columns : short_columns<Elements> {};
template <>
struct key_columns<f32_elements> : quad_columns<f32_elements> {};
template <>
struct key_columns<q8_0_elements> : q8_0_columns {};
template <>
struct key_columns<q4_0_elements> : q4_0_columns {};
#    else
template <class Elements>
struct key_columns : quad_columns<Elements> {};
template <in_blocks_of_values Elements>
struct key_columns<Elements> : converted_columns<Elements> {};
#    endif

/// One column; of no more than the row's own element.
template <class Elements>
TILEWISE_INLINE vec key_column(const key_rows& keys, std::int64_t i) {
    using stored = typename Elements::stored;
    alignas(64) stored some[lanes];
    for (int n = 0; n < lanes; ++n) {
        const std::int64_t offset = n * keys.row_bytes + i * static_cast<std::int64_t>(sizeof(stored));
        __builtin_memcpy(some + n, keys.data + offset,
                         sizeof(stored));  // where units are bf16, at any even address
    }
    return Elements::decode(some);
}
#endif

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

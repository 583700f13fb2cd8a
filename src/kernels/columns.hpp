// Columns of keys: one element of `lanes` successive keys, keys in lanes, from rows as they are stored. The
// bytes are transposed before they are converted, four at a time: there are fewer of them.

#ifndef TILEWISE_SRC_KERNELS_COLUMNS_HPP
#define TILEWISE_SRC_KERNELS_COLUMNS_HPP

#include <cstddef>
#include <cstdint>

#include "elements.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Rows that are evenly spaced, of `lanes` keys.
struct key_rows {
    const std::byte* data;
    std::int64_t row_bytes;
};

#if TILEWISE_NARROW_PANELS
/// 16 bytes of each key, from byte `offset` of its row on, transposed: a lane of word n has the key's bytes
/// 4 n .. 4 n + 3.
template <int Groups>
struct word_columns {
    int_vec words[Groups][4];
    TILEWISE_INLINE word_columns(const key_rows (&groups)[Groups], std::int64_t offset) {
#    pragma GCC unroll 2
        for (int g = 0; g < Groups; ++g) {
            const std::byte* const rows = groups[g].data + offset;
            const std::int64_t row_bytes = opaque(groups[g].row_bytes);
            vec quads[4];
#    pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) { quads[n] = load_quads(rows + n * row_bytes, 4 * row_bytes); }
            transpose_quads(quads);
#    pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) { words[g][n] = bits_of(quads[n]); }
        }
    }
    TILEWISE_INLINE void shift_right(int bits) {
#    pragma GCC unroll 8
        for (int n = 0; n < 4 * Groups; ++n) { words[n / 4][n % 4] = words[n / 4][n % 4] >> bits; }
    }
};

/// visit() calls use(i, columns), with a column of each group, for `depth` of them, i ascending from `first`,
/// a multiple of depth.
template <class Elements>
struct key_columns {
    using stored = typename Elements::stored;
    static constexpr std::int64_t in_word = 4 / sizeof(stored);
    static constexpr std::int64_t depth = 4 * in_word;
    template <int Groups, class Use>
    static TILEWISE_INLINE void visit(const key_rows (&groups)[Groups], std::int64_t first, Use use) {
        const word_columns<Groups> some(groups, first * static_cast<std::int64_t>(sizeof(stored)));
#    pragma GCC unroll 16
        for (std::int64_t n = 0; n < depth; ++n) {
            vec columns[Groups];
#    pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g) {
                columns[g] = Elements::decode_part(some.words[g][n / in_word], n % in_word);
            }
            use(first + n, columns);
        }
    }
};

#    if defined(TILEWISE_ISA_IS_avx512) || defined(TILEWISE_ISA_IS_avx2)
/// As halves of words, they would have to be packed before they are converted.
template <>
struct key_columns<f16_elements> {
    static constexpr std::int64_t depth = 8;
    template <int Groups, class Use>
    static TILEWISE_INLINE void visit(const key_rows (&groups)[Groups], std::int64_t first, Use use) {
        octets halves[Groups][8];
#        pragma GCC unroll 2
        for (int g = 0; g < Groups; ++g) {
            const std::byte* const rows = groups[g].data + 2 * first;
            const std::int64_t row_bytes = opaque(groups[g].row_bytes);
#        pragma GCC unroll 8
            for (int n = 0; n < 8; ++n) { halves[g][n] = load_octets(rows + n * row_bytes, 8 * row_bytes); }
            transpose_octets(halves[g]);
        }
#        pragma GCC unroll 8
        for (std::int64_t n = 0; n < depth; ++n) {
            vec columns[Groups];
#        pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g) { columns[g] = f16_to_float(halves[g][n]); }
            use(first + n, columns);
        }
    }
};
#    endif

/// The scale at byte `offset` of each key's row.
template <int Groups>
struct block_scales {
    vec of[Groups];
    TILEWISE_INLINE block_scales(const key_rows (&groups)[Groups], std::int64_t offset) {
        const word_columns<Groups> some(groups, offset);
#    pragma GCC unroll 2
        for (int g = 0; g < Groups; ++g) { of[g] = f16_to_float(some.words[g][0]); }
    }
};

template <>
struct key_columns<q8_0_elements> {
    static constexpr std::int64_t depth = block_values;
    template <int Groups, class Use>
    static TILEWISE_INLINE void visit(const key_rows (&groups)[Groups], std::int64_t first, Use use) {
        const std::int64_t block = first / block_values * q8_0_elements::block_bytes;
        const block_scales<Groups> scales(groups, block);
        for (std::int64_t half = 0; half < depth; half += 16) {
            const word_columns<Groups> some(groups, block + 2 + half);
#    pragma GCC unroll 16
            for (std::int64_t n = 0; n < 16; ++n) {
                vec columns[Groups];
#    pragma GCC unroll 2
                for (int g = 0; g < Groups; ++g) {
                    columns[g] = signed_byte(some.words[g][n / 4], n % 4) * scales.of[g];
                }
                use(first + half + n, columns);
            }
        }
    }
};

/// The second half of the values are in the high halves of the bytes.
template <>
struct key_columns<q4_0_elements> {
    static constexpr std::int64_t depth = block_values;
    template <int Groups, class Use>
    static TILEWISE_INLINE void visit(const key_rows (&groups)[Groups], std::int64_t first, Use use) {
        const std::int64_t block = first / block_values * q4_0_elements::block_bytes;
        const block_scales<Groups> scales(groups, block);
        word_columns<Groups> some(groups, block + 2);
        const auto visit_half = [&](std::int64_t half, std::int64_t high) TILEWISE_INLINE_LAMBDA {
#    pragma GCC unroll 16
            for (std::int64_t n = 0; n < block_values / 2; ++n) {
                vec columns[Groups];
#    pragma GCC unroll 2
                for (int g = 0; g < Groups; ++g) {
                    const int_vec word = some.words[g][n / 4];
                    columns[g] = nibble_minus_8(word, n % 4 * 2 + high) * scales.of[g];
                }
                use(first + half + n, columns);
            }
        };
        if constexpr (Groups == 1) {
            visit_half(0, 0);
            visit_half(block_values / 2, 1);
        } else {  // as a loop: of both halves at once, g++ keeps the sums in memory
            for (std::int64_t half = 0; half < block_values; half += block_values / 2) {
                visit_half(half, 0);
                some.shift_right(4);
            }
        }
    }
};

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

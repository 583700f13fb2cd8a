// Tile sources: a chunk of K or V as rows of units (products.hpp) that the micro-kernels can read, in place
// or converted into scratch, as the plan says. Only elements that exist are read.

#ifndef TILEWISE_SRC_KERNELS_TILES_HPP
#define TILEWISE_SRC_KERNELS_TILES_HPP

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "elements.hpp"
#include "interface.hpp"
#include "products.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Rows of units, side by side.
struct tile {
    const real* data;
    std::int64_t stride;
};

inline constexpr std::int64_t line_bytes = 64;  // of a cache line
inline constexpr std::int64_t line_floats = line_bytes / sizeof(real);

TILEWISE_INLINE constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
TILEWISE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
TILEWISE_INLINE constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// The stride of a copied tile: its rows start on cache lines, an odd number of them apart, so that rows
/// spread over all the cache's sets.
TILEWISE_INLINE std::int64_t tile_stride(std::int64_t dim) {
    return round_up(dim, max_depth) / line_floats % 2 == 0 ? round_up(dim, max_depth) + line_floats
                                                           : round_up(dim, max_depth);
}

/// The rows of K or of V of one head, handed out in tiles.
struct tile_source {
    const void* data;
    row_layout layout;
    std::int64_t dim;
    const float* scales;        ///< null: none
    std::int64_t first_key;     ///< position of row 0
    const std::int32_t* pages;  ///< as in task and shape
    std::int64_t page_keys;
    std::int64_t table_stride;
    real* buffer;  ///< rows of a chunk's units, tile_stride apart; null: in place, which only f32 can be
};

/// Multiplies a row, which has room for whole vectors, by scales.
inline void multiply_row(real* row, std::int64_t count, const float* scales, std::int64_t stride) {
    if (stride == 0) {
        for (std::int64_t i = 0; i < count; i += lanes) {
            store(row + i, load(row + i) * broadcast(*scales));
        }
        return;
    }
    alignas(64) real some[lanes];
    for (std::int64_t i = 0; i < count; i += lanes) {
        decode_row<f32_elements>(scales + i * stride, stride, smaller(count - i, lanes), some);
        store(row + i, load(row + i) * load(some));
    }
}

/// Where the row and the scales of a key token are.
struct row_place {
    const std::byte* row;
    const float* scales;
};
TILEWISE_INLINE row_place place_of(const tile_source& source, const storage& type, std::int64_t token) {
    const row_layout& layout = source.layout;
    std::int64_t page = 0;
    if (source.pages != nullptr) {
        page = source.pages[token / source.page_keys * source.table_stride];
        token %= source.page_keys;
    }
    const std::int64_t elements = page * layout.page_stride + token * layout.token_stride;
    return {element_at(source.data, elements, type),
            source.scales == nullptr
                ? nullptr
                : source.scales + page * layout.scale_page_stride + token * layout.scale_token_stride};
}

/// `count` elements of bf16 side by side, with zeros up to `room`.
inline void copy_halves(const std::byte* row, std::int64_t stride, std::int64_t count, std::int64_t room,
                        void* to) {
    constexpr std::int64_t size = 2;
    auto* const place = static_cast<std::byte*>(to);
    if (stride == 1 && count > 0) {  // without elements, there may be no memory
        __builtin_memcpy(place, row, static_cast<std::size_t>(count * size));
    } else {
        for (std::int64_t i = 0; i < count; ++i) {
            __builtin_memcpy(place + i * size, row + i * stride * size, static_cast<std::size_t>(size));
        }
    }
    __builtin_memset(place + count * size, 0, static_cast<std::size_t>((room - count) * size));
}

/// Units first .. first + count - 1 of a row of `dim` elements; the one beyond the last in a pair is 0.
TILEWISE_INLINE void load_units(const std::byte* row, const storage& type, std::int64_t stride,
                                std::int64_t dim, std::int64_t first, std::int64_t count, real* to) {
    const std::byte* const from = element_at(row, first * unit_elements * stride, type);
    if constexpr (in_pairs) {
        const std::int64_t elements = smaller(dim - first * unit_elements, count * unit_elements);
        copy_halves(from, stride, elements, count * unit_elements, to);
    } else {
        type.decode(from, stride, count, to);
    }
}

/// A row in units, with zeros up to a multiple of max_depth.
TILEWISE_INLINE void load_row(const tile_source& source, const storage& type, const row_place& from,
                              real* to) {
    const row_layout& layout = source.layout;
    const std::int64_t units = unit_count(source.dim);
    if (layout.type == real_type && layout.element_stride == 1) {
        __builtin_memcpy(to, from.row, static_cast<std::size_t>(source.dim) * sizeof(real));
    } else {
        load_units(from.row, type, layout.element_stride, source.dim, 0, units, to);
    }
    if (from.scales != nullptr) { multiply_row(to, source.dim, from.scales, layout.scale_element_stride); }
    for (std::int64_t i = units; i < round_up(units, max_depth); ++i) { to[i] = 0.0F; }
}

/// Calls visit(j, place) for `count` rows from key token `first` on.
template <class Visit>
TILEWISE_INLINE void visit_places(const tile_source& source, const storage& type, std::int64_t first,
                                  std::int64_t count, Visit visit) {
    const std::int64_t row_bytes = bytes_of(source.layout.token_stride, type);
    row_place place{};
    for (std::int64_t j = 0; j < count; ++j, place.row += row_bytes) {
        if (j == 0 || (source.pages != nullptr && (first + j) % source.page_keys == 0)) {
            place = place_of(source, type, first + j);
        }
        visit(j, place);
        if (place.scales != nullptr) { place.scales += source.layout.scale_token_stride; }
    }
}

/// Reads something of each cache line, also of the last one, where the first byte is in the midst of one.
TILEWISE_INLINE void touch_lines(const std::byte* from, std::int64_t bytes) {
    const auto in_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from) % line_bytes);
    if (bytes > 0) { touch(from); }
#pragma GCC unroll 8
    for (std::int64_t i = line_bytes - in_line; i < bytes; i += line_bytes) { touch(from + i); }
}

/// Whether there is something else between rows: the processor's own prefetchers do not find these.
TILEWISE_INLINE bool are_apart(std::int64_t row_bytes, std::int64_t used_bytes) {
    return row_bytes >= used_bytes + line_bytes;
}

/// Reads all of such rows.
inline void touch_rows_apart(const tile_source& source, const storage& type, std::int64_t first,
                             std::int64_t count) {
    const row_layout& layout = source.layout;
    const std::int64_t used_bytes = bytes_of(source.dim, type);
    if (layout.element_stride != 1 || !are_apart(bytes_of(layout.token_stride, type), used_bytes)) { return; }
    visit_places(source, type, first, count,
                 [&](std::int64_t /*j*/, const row_place& place) { touch_lines(place.row, used_bytes); });
}

/// Keys first .. first + count - 1. All rows are copied at once, and read before: where each lies on a page
/// of its own, the processor looks up several pages at a time, but not for a row or two between computations,
/// and fewer while it copies, which takes more instructions.
inline tile load_tile(const tile_source& source, std::int64_t first, std::int64_t count) {
    const row_layout& layout = source.layout;
    first -= source.first_key;
    const storage& type = storage_of(layout.type);
    if (source.buffer == nullptr) {
        return {reinterpret_cast<const real*>(place_of(source, type, first).row), layout.token_stride};
    }
    const std::int64_t stride = tile_stride(unit_count(source.dim));
    touch_rows_apart(source, type, first, count);
    visit_places(source, type, first, count, [&](std::int64_t j, const row_place& place) {
        load_row(source, type, place, source.buffer + j * stride);
    });
    return {source.buffer, stride};
}

#if defined(TILEWISE_BF16_PAIRS)
/// A row of pairs: elements of two rows of bf16, of which one may be missing (null), and counts as 0.
inline void pair_rows(const std::byte* first, const std::byte* second, std::int64_t stride, std::int64_t dim,
                      real* to) {
    constexpr std::int64_t piece = 64;
    alignas(64) std::byte some[2][2 * piece] = {};
    std::int64_t x = 0;
    const auto interleave = [&](const std::byte* a, const std::byte* b, std::int64_t count) {
        for (std::int64_t i = 0; i < count; i += lanes) {
            store(to + x + i, interleave_rows(a + 2 * i, b + 2 * i));
        }
    };
    if (first != nullptr && second != nullptr && stride == 1) {
        for (; x + max_depth <= dim; x += max_depth) { interleave(first + 2 * x, second + 2 * x, max_depth); }
    }
    for (; x < dim; x += piece) {
        const std::int64_t count = smaller(dim - x, piece);
        if (first != nullptr) { copy_halves(first + 2 * x * stride, stride, count, piece, some[0]); }
        if (second != nullptr) { copy_halves(second + 2 * x * stride, stride, count, piece, some[1]); }
        interleave(some[0], some[1], round_up(count, max_depth));
    }
}

/// Values at positions first .. first + count - 1, as rows of pairs.
inline tile load_value_tile(const tile_source& source, std::int64_t first, std::int64_t count) {
    const storage& type = storage_of(source.layout.type);
    const std::int64_t stride = tile_stride(source.dim);
    const std::int64_t last = first + count;
    const auto row_at = [&](std::int64_t key) -> const std::byte* {
        return key < first || key >= last ? nullptr : place_of(source, type, key - source.first_key).row;
    };
    real* to = source.buffer;
    for (std::int64_t key = first - first % 2; key < last; key += 2, to += stride) {
        pair_rows(row_at(key), row_at(key + 1), source.layout.element_stride, source.dim, to);
    }
    return {source.buffer, stride};
}
#else
/// A unit of a tile of V is one value.
inline tile load_value_tile(const tile_source& source, std::int64_t first, std::int64_t count) {
    return load_tile(source, first, count);
}
#endif

/// Whether no number of a unit is infinite or NaN.
#if defined(TILEWISE_BF16_PAIRS)
TILEWISE_INLINE bool is_finite(const real& unit) {
    std::uint32_t bits = 0;
    __builtin_memcpy(&bits, &unit, sizeof bits);
    return (bits & 0x7f80U) != 0x7f80U && (bits & 0x7f800000U) != 0x7f800000U;
}
#else
TILEWISE_INLINE bool is_finite(real unit) { return is_finite_number(unit); }
#endif

/// Whether no element of a tile is infinite or NaN; it has rows of so many units.
inline bool all_finite(const tile& rows, std::int64_t count, std::int64_t units) {
    bool finite = true;
    for (std::int64_t j = 0; j < count; ++j) {
        const real* const row = rows.data + j * rows.stride;
        for (std::int64_t i = 0; i < units; ++i) { finite &= is_finite(row[i]); }
    }
    return finite;
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

// Tile sources: a chunk of K or V as f32 rows that the micro-kernels can read, in place or converted into
// scratch, as the plan says. Only elements that exist are read.

#ifndef TILEWISE_SRC_KERNELS_TILES_HPP
#define TILEWISE_SRC_KERNELS_TILES_HPP

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "elements.hpp"
#include "interface.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Rows of f32, their elements side by side.
struct tile {
    const real* data;
    std::int64_t stride;
};

inline constexpr std::int64_t line_floats = 64 / sizeof(real);  // of a cache line

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
    real* buffer;  ///< [keys of a chunk][tile_stride(dim)]; null: in place, which only f32 can be
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
    return {static_cast<const std::byte*>(source.data) + elements / type.block_elements * type.block_bytes,
            source.scales == nullptr
                ? nullptr
                : source.scales + page * layout.scale_page_stride + token * layout.scale_token_stride};
}

/// A row as f32, with zeros up to a multiple of max_depth.
TILEWISE_INLINE void load_row(const tile_source& source, const storage& type, const row_place& from,
                              real* to) {
    const row_layout& layout = source.layout;
    if (layout.type == real_type && layout.element_stride == 1) {
        __builtin_memcpy(to, from.row, static_cast<std::size_t>(source.dim) * sizeof(real));
    } else {
        type.decode(from.row, layout.element_stride, source.dim, to);
    }
    if (from.scales != nullptr) { multiply_row(to, source.dim, from.scales, layout.scale_element_stride); }
    for (std::int64_t i = source.dim; i < round_up(source.dim, max_depth); ++i) { to[i] = 0.0F; }
}

/// Keys first .. first + count - 1. All rows are copied at once: where each lies on a page of its own, the
/// processor looks up several pages at a time, which it cannot do for a row or two between computations.
inline tile load_tile(const tile_source& source, std::int64_t first, std::int64_t count) {
    const row_layout& layout = source.layout;
    first -= source.first_key;
    const storage& type = storage_of(layout.type);
    if (source.buffer == nullptr) {
        return {reinterpret_cast<const real*>(place_of(source, type, first).row), layout.token_stride};
    }
    const std::int64_t stride = tile_stride(source.dim);
    const std::int64_t row_bytes = layout.token_stride / type.block_elements * type.block_bytes;
    row_place place{};
    for (std::int64_t j = 0; j < count; ++j, place.row += row_bytes) {
        if (j == 0 || (source.pages != nullptr && (first + j) % source.page_keys == 0)) {
            place = place_of(source, type, first + j);
        }
        load_row(source, type, place, source.buffer + j * stride);
        if (place.scales != nullptr) { place.scales += layout.scale_token_stride; }
    }
    return {source.buffer, stride};
}

/// Prefetches the next chunk, a few rows at a time, while the current one is computed: the processor's own
/// prefetchers do not look that far, and more requests at once than it can hold would make it wait. Only
/// sources that are read in place; copying has requests enough under way. Every second line: the processor
/// fetches lines in pairs.
class chunk_prefetcher {
public:
    /// Keys first .. last - 1; `steps` calls of step() are to come.
    chunk_prefetcher(const tile_source& k, const tile_source& v, std::int64_t first, std::int64_t last,
                     std::int64_t steps)
        : k_(k), v_(v), next_(first), last_(last), rows_per_step_((last - first) / steps + 1) {}

    void step() {
        for (const std::int64_t end = smaller(next_ + rows_per_step_, last_); next_ < end; ++next_) {
            prefetch_row(k_, next_);
            prefetch_row(v_, next_);
        }
    }

private:
    static void prefetch_row(const tile_source& source, std::int64_t key) {
        if (source.buffer != nullptr) { return; }
        const auto* const row = reinterpret_cast<const real*>(
            place_of(source, storage_of(source.layout.type), key - source.first_key).row);
        for (std::int64_t i = 0; i < source.dim; i += 2 * line_floats) { __builtin_prefetch(row + i, 0, 2); }
    }

    const tile_source& k_;
    const tile_source& v_;
    std::int64_t next_;
    std::int64_t last_;
    std::int64_t rows_per_step_;
};

/// Whether no element of a tile is infinite or NaN.
inline bool all_finite(const tile& rows, std::int64_t count, std::int64_t dim) {
    bool finite = true;
    for (std::int64_t j = 0; j < count; ++j) {
        for (std::int64_t i = 0; i < dim; ++i) {
            finite = finite && is_finite_number(rows.data[j * rows.stride + i]);
        }
    }
    return finite;
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

// Tile sources: a chunk of K or V as f32 rows that the micro-kernels can read. In place where it lies well
// in memory, else copied into scratch.

#ifndef TILEWISE_SRC_KERNELS_TILES_HPP
#define TILEWISE_SRC_KERNELS_TILES_HPP

#include <cstdint>

#include "interface.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Rows of f32, their elements side by side.
struct tile {
    const float* data;
    std::int64_t stride;
};

inline constexpr std::int64_t line_floats = 16;  // of a cache line

TILEWISE_INLINE std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// The stride of a copied tile: its rows start on cache lines, an odd number of them apart, so that rows
/// spread over all the cache's sets.
TILEWISE_INLINE std::int64_t tile_stride(std::int64_t dim) {
    return round_up(dim, max_depth) / line_floats % 2 == 0 ? round_up(dim, max_depth) + line_floats
                                                           : round_up(dim, max_depth);
}

/// Whether the rows can be read where they are: dense, and not so far apart that a chunk of them fights for
/// the same cache sets and pages.
TILEWISE_INLINE bool lies_well(const rows_in& rows, std::int64_t dim) {
    return rows.element_stride == 1 && rows.token_stride >= dim && rows.token_stride <= 2 * dim;
}

/// Copies `count` rows; columns from dim to the next multiple of max_depth become 0.
inline void copy_tile(const rows_in& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                      float* to, std::int64_t stride) {
    const std::int64_t padded = round_up(dim, max_depth);
    for (std::int64_t j = 0; j < count; ++j) {
        const float* const from = rows.data + (first + j) * rows.token_stride;
        float* const row = to + j * stride;
        if (rows.element_stride == 1) {
            for (std::int64_t i = 0; i < dim; ++i) { row[i] = from[i]; }
        } else {
            for (std::int64_t i = 0; i < dim; ++i) { row[i] = from[i * rows.element_stride]; }
        }
        for (std::int64_t i = dim; i < padded; ++i) { row[i] = 0.0F; }
    }
}

/// Rows first .. first + count - 1. `needs_padding` asks for columns up to a multiple of max_depth.
TILEWISE_INLINE tile load_tile(const rows_in& rows, std::int64_t first, std::int64_t count, std::int64_t dim,
                               bool needs_padding, float* scratch) {
    if (lies_well(rows, dim) && (!needs_padding || dim % max_depth == 0)) {
        return {rows.data + first * rows.token_stride, rows.token_stride};
    }
    copy_tile(rows, first, count, dim, scratch, tile_stride(dim));
    return {scratch, tile_stride(dim)};
}

/// Starts moving rows to the second-level cache.
inline void prefetch_rows(const rows_in& rows, std::int64_t first, std::int64_t count, std::int64_t dim) {
    if (rows.element_stride != 1) { return; }
    for (std::int64_t j = first; j < first + count; ++j) {
        const float* const row = rows.data + j * rows.token_stride;
        for (std::int64_t i = 0; i < dim; i += line_floats) { __builtin_prefetch(row + i, 0, 2); }
    }
}

/// Whether no element of a tile is infinite or NaN.
inline bool all_finite(const tile& rows, std::int64_t count, std::int64_t dim) {
    bool finite = true;
    for (std::int64_t j = 0; j < count; ++j) {
        for (std::int64_t i = 0; i < dim; ++i) {
            finite = finite && __builtin_fabsf(rows.data[j * rows.stride + i]) <= __FLT_MAX__;
        }
    }
    return finite;
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

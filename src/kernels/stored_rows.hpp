// Rows of K and V as they are stored, for panels of a few query rows: each is read about once, so that
// converting whole chunks first would cost more than computing.

#ifndef TILEWISE_SRC_KERNELS_STORED_ROWS_HPP
#define TILEWISE_SRC_KERNELS_STORED_ROWS_HPP

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "columns.hpp"
#include "elements.hpp"
#include "interface.hpp"
#include "simd.hpp"
#include "tiles.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Whether the units of a row are side by side, and scales do not vary along both tokens and elements.
inline bool can_be_read_as_stored(const tile_source& source) {
    const row_layout& layout = source.layout;
    if (source.dim % unit_elements != 0) { return false; }
    const bool one_scale_per_row = source.scales == nullptr || layout.scale_element_stride == 0;
    const bool same_scales = layout.scale_token_stride == 0 && layout.scale_page_stride == 0;
    return layout.element_stride == 1 && (one_scale_per_row || same_scales);
}

/// A tile of f32 as a source whose first row is the key at position `first_key`.
inline tile_source source_of(const tile& rows, std::int64_t dim, std::int64_t first_key) {
    tile_source source{};
    source.data = rows.data;
    source.layout.token_stride = rows.stride;
    source.layout.element_stride = 1;
    source.layout.type = real_type;
    source.dim = dim;
    source.first_key = first_key;
    return source;
}

/// What is prefetched may be in no array, where no pointer may point. Only for functions that are inlined: to
/// g++, one that prefetches and does nothing else has no effect, and calls of it are dropped.
TILEWISE_INLINE void prefetch(std::uintptr_t address) {
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);  // NOLINT(performance-no-int-to-ptr)
}

/// Walks over the cache lines of rows that will be used soon, to prefetch them into the second-level cache,
/// spread over the work on others. Every line: what is left out costs the whole latency of memory.
class line_walk {
public:
    line_walk(std::uintptr_t rows, std::int64_t count, std::int64_t row_bytes, std::int64_t used_bytes,
              std::int64_t steps)
        : row_(rows),
          row_bytes_(static_cast<std::uintptr_t>(row_bytes)),
          lines_((used_bytes + line_bytes - 1) / line_bytes) {
        if (are_apart(row_bytes, used_bytes)) {
            if ((row_ | row_bytes_) % line_bytes != 0) { ++lines_; }  // rows begin in the midst of one
        } else {                                                      // as one long row
            lines_ = (count * row_bytes + line_bytes - 1) / line_bytes;
            count = 1;
        }
        left_ = rows == 0 ? 0 : count * lines_;
        per_step_ = (left_ + steps - 1) / larger(steps, 1);
    }
    TILEWISE_INLINE void step() {
        std::int64_t count = smaller(per_step_, left_);
        left_ -= count;
        while (count > 0) {
            const std::int64_t here = smaller(count, lines_ - line_);
#pragma GCC unroll 4
            for (std::int64_t n = 0; n < here; ++n) {
                prefetch(row_ + static_cast<std::uintptr_t>((line_ + n) * line_bytes));
            }
            count -= here;
            line_ += here;
            if (line_ == lines_) {
                line_ = 0;
                row_ += row_bytes_;
            }
        }
    }

private:
    std::uintptr_t row_;
    std::uintptr_t row_bytes_;
    std::int64_t line_ = 0;
    std::int64_t lines_;
    std::int64_t left_ = 0;
    std::int64_t per_step_ = 0;
};

/// Rows of a source from one key on; in groups of `lanes`, which are evenly spaced each.
struct stored_rows {
    const tile_source* source;
    const storage* type;
    std::int64_t first;       ///< token
    std::int64_t count;       ///< from 1 to chunk_keys
    std::int64_t last;        ///< token; none from this one on will be used
    std::int64_t row_bytes;   ///< from row to row
    std::int64_t used_bytes;  ///< of them
    std::byte* gathered;      ///< room for `lanes` rows of f32: for groups that are not evenly spaced
};

/// Units of a row; rows that have been copied for all panels are of units, with real_type.
TILEWISE_INLINE std::int64_t units_of_row(const tile_source& source) {
    return source.layout.type == real_type ? source.dim : unit_count(source.dim);
}

/// Keys `keys` of a source, of which none from `last` on will be used.
inline stored_rows rows_at(const tile_source& source, const key_range& keys, std::int64_t last,
                           real* gathered) {
    const storage& type = storage_of(source.layout.type);
    return {&source,
            &type,
            keys.first - source.first_key,
            keys.last - keys.first,
            last - source.first_key,
            bytes_of(source.layout.token_stride, type),
            bytes_of(source.dim, type),
            reinterpret_cast<std::byte*>(gathered)};
}

/// Chunks whose pages are looked up together: few enough that what is read of them stays near.
inline constexpr std::int64_t chunks_looked_up = 4;

/// Every so many chunks, reads one line of each memory page of the next ones' rows, so that the processor
/// looks up where these pages are, many at a time: all of them take little more time than one. Prefetching
/// does not: until something is really read from a page, requests for the rest of it get nowhere; this is a
/// quarter of the time of decoding from pages of 4 KiB.
inline void look_up_next_chunks(const stored_rows& rows) {
    constexpr std::int64_t page_bytes = 4096;
    if (rows.first / contract::chunk_keys % chunks_looked_up != 0) { return; }
    const std::int64_t step = larger(page_bytes / larger(rows.row_bytes, 1), 1);
    const std::int64_t first = rows.first + rows.count;
    const std::int64_t last = smaller(first + chunks_looked_up * contract::chunk_keys, rows.last);
    if (rows.used_bytes == 0) { return; }  // and there may be no memory at all
    for (std::int64_t token = first; token < last; token += step) {
        touch(place_of(*rows.source, *rows.type, token).row);
    }
}

/// Whether panels of so few rows wait for memory, whatever is prefetched; then the processor's own
/// prefetchers are to help, which follow what is read in the order of memory, unlike in transposing.
/// (Instructions to prefetch can only be under way a few at a time. Without them, the processor's prefetchers
/// stop while rows are computed.)
template <class Elements>
inline constexpr bool waits_for_memory(std::int64_t rows) {
    return rows <= 2 && sizeof(typename Elements::stored) == sizeof(real);
}
template <in_blocks_of_values Elements>
inline constexpr bool waits_for_memory(std::int64_t /*rows*/) {
    return false;
}

/// Reads all lines of rows in order.
inline void touch_rows(const key_rows& rows, std::int64_t count, std::int64_t used_bytes) {
    const bool gaps = rows.row_bytes != used_bytes;
    const std::int64_t pieces = gaps ? count : 1;
    const std::int64_t bytes = gaps ? used_bytes : count * used_bytes;
    for (std::int64_t n = 0; n < pieces; ++n) {
        const std::byte* const row = rows.data + n * rows.row_bytes;
        touch_lines(row, bytes);
    }
}

TILEWISE_INLINE bool on_one_page(const tile_source& source, std::int64_t token, std::int64_t count) {
    return source.pages == nullptr || token % source.page_keys + count <= source.page_keys;
}

/// Rows that are prefetched ahead of their use: groups of them, since the last row of a group is needed as
/// soon as the first. Products of pairs take half the time, in which as much is read.
inline constexpr std::int64_t rows_ahead = 48 * unit_elements;

/// What is to be prefetched while the rows from `row` on are used; 0: nothing.
TILEWISE_INLINE std::uintptr_t ahead_of(const stored_rows& rows, std::int64_t row) {
    const std::int64_t token = rows.first + row + rows_ahead;
    if (token >= rows.last) { return 0; }
    return reinterpret_cast<std::uintptr_t>(place_of(*rows.source, *rows.type, token).row);
}

/// Rows so far apart fall into a few sets of the first-level cache, which then holds no `lanes` of them.
inline constexpr std::int64_t clashing_bytes = 2048;

/// Whether so many rows are there from row `row` on, evenly spaced, and can be transposed where they are.
TILEWISE_INLINE bool are_even(const stored_rows& rows, std::int64_t row, std::int64_t count) {
    return row + count <= rows.count && rows.row_bytes % clashing_bytes != 0 &&
           on_one_page(*rows.source, rows.first + row, count);
}

/// `lanes` keys from row `row` on; the last key once more in place of those that do not exist.
inline key_rows key_group(const stored_rows& rows, std::int64_t row) {
    const std::int64_t count = smaller(rows.count - row, lanes);
    const std::int64_t token = rows.first + row;
    if (are_even(rows, row, lanes)) {
        return {place_of(*rows.source, *rows.type, token).row, rows.row_bytes};
    }
    const std::int64_t stride = tile_stride(rows.source->dim) * static_cast<std::int64_t>(sizeof(real));
    for (std::int64_t n = 0; n < lanes && rows.used_bytes > 0; ++n) {
        __builtin_memcpy(rows.gathered + n * stride,
                         place_of(*rows.source, *rows.type, token + smaller(n, count - 1)).row,
                         static_cast<std::size_t>(rows.used_bytes));
    }
    return {rows.gathered, stride};
}

/// One scale per key of a group; 1 where keys have none.
inline vec key_scales(const stored_rows& rows, std::int64_t row) {
    const tile_source& source = *rows.source;
    if (source.scales == nullptr || source.layout.scale_element_stride != 0) { return broadcast(1.0F); }
    alignas(64) real scales[lanes];
    for (std::int64_t n = 0; n < lanes; ++n) {
        const std::int64_t token = rows.first + smaller(row + n, rows.count - 1);
        scales[n] = *place_of(source, *rows.type, token).scales;
    }
    return load(scales);
}

/// Whether no element of the rows is infinite or NaN.
inline bool all_finite(const stored_rows& rows, real* row_buffer) {
    const tile_source& source = *rows.source;
    for (std::int64_t n = 0; n < rows.count; ++n) {
        load_row(source, *rows.type, place_of(source, *rows.type, rows.first + n), row_buffer);
        if (!all_finite(tile{row_buffer, 0}, 1, unit_count(source.dim))) { return false; }
    }
    return true;
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

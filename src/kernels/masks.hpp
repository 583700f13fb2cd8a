// Masks that a caller gives as tensors: what a tile of them says, and masking scores by it. Intervals of
// keys are in visibility.hpp.

#ifndef TILEWISE_SRC_KERNELS_MASKS_HPP
#define TILEWISE_SRC_KERNELS_MASKS_HPP

#include <cstdint>

#include "../contract.hpp"
#include "interface.hpp"
#include "panel.hpp"
#include "simd.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// One row of a mask of bytes, of bits, or of blocks; keys are counted from the first that the task has.
struct byte_row {
    const std::uint8_t* data;
    std::int64_t stride;
    [[nodiscard]] bool sees(std::int64_t key) const { return data[key * stride] != 0; }
};
struct bit_row {
    const std::uint8_t* data;
    std::int64_t first;
    std::int64_t stride;
    [[nodiscard]] bool sees(std::int64_t key) const {
        const std::int64_t bit = first + key * stride;
        return ((data[bit >> 3] >> (bit & 7)) & 1) != 0;
    }
};
struct block_row {
    const std::uint8_t* data;
    std::int64_t stride;
    std::int64_t keys;
    [[nodiscard]] bool sees(std::int64_t key) const { return data[key / keys * stride] != 0; }
    [[nodiscard]] std::int64_t next_block(std::int64_t key) const { return (key / keys + 1) * keys; }
};

/// Calls visit(r, row) with every row's row of a mask that says something of each key.
template <class Visit>
TILEWISE_INLINE void visit_key_rows(const shape& s, const task& t, const panel& p, Visit visit) {
    const grid& visible = s.masks.visible;
    if (visible.data == nullptr) { return; }
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; ++r, at.advance()) {
        if (s.masks.storage == mask_storage::bytes) {
            visit(r, byte_row{row_of<std::uint8_t>(visible, t, at.token(), at.head()), visible.key_stride});
        } else {
            visit(r, bit_row{static_cast<const std::uint8_t*>(visible.data),
                             row_offset(visible, t, at.token(), at.head()), visible.key_stride});
        }
    }
}

/// The same for the mask of blocks.
template <class Visit>
TILEWISE_INLINE void visit_block_rows(const shape& s, const task& t, const panel& p, Visit visit) {
    const tensor_masks& masks = s.masks;
    if (masks.blocks.data == nullptr) { return; }
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; ++r, at.advance()) {
        visit(r, block_row{row_of<std::uint8_t>(masks.blocks, t, at.token() / masks.block_queries, at.head()),
                           masks.blocks.key_stride, masks.block_keys});
    }
}

/// Whether some, and whether all, of the keys that were looked at are visible.
struct sighting {
    bool some = false;
    bool all = true;
    void add(bool some_more, bool all_more) {
        some = some || some_more;
        all = all && all_more;
    }
};

template <class Row>
TILEWISE_INLINE void look_one_by_one(const Row& row, std::int64_t first, std::int64_t last, sighting& seen) {
    for (std::int64_t j = first; j < last; ++j) { seen.add(row.sees(j), row.sees(j)); }
}

/// Bytes of eight keys each.
inline void look_at_bits(const std::uint8_t* bytes, std::int64_t count, sighting& seen) {
    std::uint8_t any = 0;
    std::uint8_t common = 0xff;
    for (std::int64_t i = 0; i < count; ++i) {
        any |= bytes[i];
        common &= bytes[i];
    }
    if (count > 0) { seen.add(any != 0, common == 0xff); }
}

/// The smallest and largest byte of each key over the rows of a panel: rows are compared with each other
/// first, many keys at a time, and keys only once for all rows.
struct byte_columns {
    std::uint8_t lowest[contract::chunk_keys];
    std::uint8_t highest[contract::chunk_keys];
    std::int64_t keys;  ///< 0: no rows yet

    void add(const std::uint8_t* bytes, std::int64_t count) {
        if (keys == 0) {
            __builtin_memset(lowest, 0xff, sizeof lowest);
            __builtin_memset(highest, 0, sizeof highest);
        }
        keys = count;
        for (std::int64_t i = 0; i < count; ++i) {
            lowest[i] = bytes[i] < lowest[i] ? bytes[i] : lowest[i];
            highest[i] = bytes[i] > highest[i] ? bytes[i] : highest[i];
        }
    }
    void add_to(sighting& seen) const {
        std::uint8_t least = 0xff;
        std::uint8_t most = 0;
        for (std::int64_t i = 0; i < keys; ++i) {
            least = lowest[i] < least ? lowest[i] : least;
            most = highest[i] > most ? highest[i] : most;
        }
        if (keys > 0) { seen.add(most != 0, least != 0); }
    }
};

TILEWISE_INLINE void look(const byte_row& row, const key_range& keys, sighting& seen, byte_columns& columns) {
    if (row.stride == 1) {
        columns.add(row.data + keys.first, keys.last - keys.first);
    } else {
        look_one_by_one(row, keys.first, keys.last, seen);
    }
}
TILEWISE_INLINE void look(const bit_row& row, const key_range& keys, sighting& seen,
                          byte_columns& /*columns*/) {
    if (row.stride != 1) {
        look_one_by_one(row, keys.first, keys.last, seen);
        return;
    }
    const std::int64_t whole_first = smaller(round_up(row.first + keys.first, 8), row.first + keys.last);
    const std::int64_t whole_last = larger((row.first + keys.last) / 8 * 8, whole_first);
    look_one_by_one(row, keys.first, whole_first - row.first, seen);
    look_at_bits(row.data + whole_first / 8, (whole_last - whole_first) / 8, seen);
    look_one_by_one(row, whole_last - row.first, keys.last, seen);
}
TILEWISE_INLINE void look(const block_row& row, const key_range& keys, sighting& seen,
                          byte_columns& /*columns*/) {
    for (std::int64_t j = keys.first; j < keys.last; j = row.next_block(j)) {
        seen.add(row.sees(j), row.sees(j));
    }
}

inline bool has_tensor_masks(const shape& s) {
    return s.masks.visible.data != nullptr || s.masks.blocks.data != nullptr;
}

/// The keys of the chunk that starts at `start` which rows of the panel see, by the intervals.
TILEWISE_INLINE key_range keys_in_chunk(const panel& p, std::int64_t start) {
    const key_range here{start, start + contract::chunk_keys};
    return join(intersect(p.range.early, here), intersect(p.range.main, here));
}

/// What the tensor masks say of the chunk that starts at `start` and of some after it.
inline void look_ahead(const shape& s, const task& t, panel& p, std::int64_t start) {
    sighting seen[2][chunks_ahead];  // by `visible`, by `blocks`
    byte_columns columns[chunks_ahead];
    key_range keys[chunks_ahead];  // from the task's first one on
    int chunks = 0;
    for (int i = 0; i < chunks_ahead; ++i) {
        const key_range here = keys_in_chunk(p, start + i * contract::chunk_keys);
        keys[i] = {here.first - t.first_key, here.last - t.first_key};
        columns[i].keys = 0;
        if (!is_empty(here)) { chunks = i + 1; }
    }
    const auto look_at_row = [&](const auto& row, sighting* of_chunks) {
        for (int i = 0; i < chunks; ++i) {
            if (!is_empty(keys[i])) { look(row, keys[i], of_chunks[i], columns[i]); }
        }
    };
    visit_key_rows(s, t, p, [&](std::int64_t, const auto& row) { look_at_row(row, seen[0]); });
    visit_block_rows(s, t, p, [&](std::int64_t, const block_row& row) { look_at_row(row, seen[1]); });
    for (int i = 0; i < chunks; ++i) { columns[i].add_to(seen[0][i]); }
    const bool present[2] = {s.masks.visible.data != nullptr, s.masks.blocks.data != nullptr};
    for (int i = 0; i < chunks_ahead; ++i) {
        bool hidden = false;
        bool all = true;
        for (int kind = 0; kind < 2; ++kind) {
            hidden = hidden || (present[kind] && !seen[kind][i].some);
            all = all && (!present[kind] || seen[kind][i].all);
        }
        p.ahead[i] = hidden ? tile_visibility::none : all ? tile_visibility::all : tile_visibility::some;
    }
    p.ahead_start = start;
}

/// What the tensor masks say of the panel's keys in a chunk. With several masks, `none` means that one of
/// them hides all.
inline tile_visibility look_at_masks(const shape& s, const task& t, panel& p, std::int64_t start) {
    if (!has_tensor_masks(s)) { return tile_visibility::all; }
    const std::int64_t end = p.ahead_start + static_cast<std::int64_t>(chunks_ahead) * contract::chunk_keys;
    if (p.ahead_start < 0 || start < p.ahead_start || start >= end) { look_ahead(s, t, p, start); }
    return p.ahead[(start - p.ahead_start) / contract::chunk_keys];
}

/// Writes `value` where the block mask hides a key from a row: what it says of a row is the same for all keys
/// of a block.
inline void fill_hidden_blocks(const shape& s, const task& t, const panel& p, real* tile,
                               const key_range& keys, real value) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    alignas(64) real hidden[max_row_vectors * lanes] = {};
    for (std::int64_t j = keys.first; j < keys.last;) {
        // From the task's first key on, as the blocks are: one may be so large that its end has no position.
        const std::int64_t key = j - t.first_key;
        std::int64_t end = keys.last - t.first_key;
        visit_block_rows(s, t, p, [&](std::int64_t r, const block_row& row) {
            hidden[r] = row.sees(key) ? 0.0F : 1.0F;
            end = smaller(end, row.next_block(key));
        });
        for (; j < t.first_key + end; ++j) {
            real* const scores = tile + (j - keys.first) * width;
            for (std::int64_t n = 0; n < width; n += lanes) {
                const mask shown = load(hidden + n) == broadcast(0.0F);
                store(scores + n, select(shown, load(scores + n), broadcast(value)));
            }
        }
    }
}

/// Writes `value` where a tensor mask hides a key from a row.
inline void fill_masked(const shape& s, const task& t, const panel& p, real* tile, const key_range& keys,
                        real value) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    visit_key_rows(s, t, p, [&](std::int64_t r, const auto& row) {
        for (std::int64_t j = keys.first; j < keys.last; ++j) {
            // Always written: what a mask says cannot be predicted.
            real* const place = tile + (j - keys.first) * width + r;
            *place = row.sees(j - t.first_key) ? *place : value;
        }
    });
    if (s.masks.blocks.data != nullptr) { fill_hidden_blocks(s, t, p, tile, keys, value); }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

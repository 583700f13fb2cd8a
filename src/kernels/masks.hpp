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
    [[nodiscard]] const std::uint8_t* place_of(std::int64_t key) const { return data + key * stride; }
    [[nodiscard]] bool sees(std::int64_t key) const { return *place_of(key) != 0; }
};
struct bit_row {
    const std::uint8_t* data;
    std::int64_t first;
    std::int64_t stride;
    [[nodiscard]] std::int64_t bit_of(std::int64_t key) const { return first + key * stride; }
    [[nodiscard]] const std::uint8_t* place_of(std::int64_t key) const { return data + (bit_of(key) >> 3); }
    [[nodiscard]] bool sees(std::int64_t key) const {
        return ((*place_of(key) >> (bit_of(key) & 7)) & 1) != 0;
    }
};
struct block_row {
    const std::uint8_t* data;
    std::int64_t stride;
    std::int64_t keys;
    [[nodiscard]] const std::uint8_t* place_of(std::int64_t key) const { return data + key / keys * stride; }
    [[nodiscard]] bool sees(std::int64_t key) const { return *place_of(key) != 0; }
    [[nodiscard]] std::int64_t next_block(std::int64_t key) const { return (key / keys + 1) * keys; }
};

/// What a mask says of one row of the task.
template <class Row>
Row row_at(const shape& s, const task& t, const row_position& at);
template <>
TILEWISE_INLINE byte_row row_at(const shape& s, const task& t, const row_position& at) {
    const grid& visible = s.masks.visible;
    return {row_of<std::uint8_t>(visible, t, at.token(), at.head()), visible.key_stride};
}
template <>
TILEWISE_INLINE bit_row row_at(const shape& s, const task& t, const row_position& at) {
    const grid& visible = s.masks.visible;
    return {static_cast<const std::uint8_t*>(visible.data), row_offset(visible, t, at.token(), at.head()),
            visible.key_stride};
}
template <>
TILEWISE_INLINE block_row row_at(const shape& s, const task& t, const row_position& at) {
    const tensor_masks& masks = s.masks;
    return {row_of<std::uint8_t>(masks.blocks, t, at.token() / masks.block_queries, at.head()),
            masks.blocks.key_stride, masks.block_keys};
}

/// Calls visit(r, row) for every row of a panel.
template <class Row, class Visit>
TILEWISE_INLINE void visit_rows(const shape& s, const task& t, const panel& p, Visit visit) {
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; ++r, at.advance()) { visit(r, row_at<Row>(s, t, at)); }
}

inline bool has_key_mask(const shape& s) { return s.masks.visible.data != nullptr; }
inline bool has_block_mask(const shape& s) { return s.masks.blocks.data != nullptr; }
inline bool has_tensor_masks(const shape& s) { return has_key_mask(s) || has_block_mask(s); }

/// Calls use<Row>() with the kind of rows of the mask that says something of each key, if there is one.
template <class Use>
TILEWISE_INLINE void with_key_rows(const shape& s, Use use) {
    if (!has_key_mask(s)) { return; }
    if (s.masks.storage == mask_storage::bytes) {
        use.template operator()<byte_row>();
    } else {
        use.template operator()<bit_row>();
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

/// Bytes of eight keys each; eight of them at a time.
inline void look_at_bits(const std::uint8_t* bytes, std::int64_t count, sighting& seen) {
    if (count == 0) { return; }
    std::uint64_t any = 0;
    std::uint64_t common = UINT64_MAX;
    const auto add = [&](std::uint64_t bits, std::uint64_t others) {
        any |= bits;
        common &= bits | others;
    };
    for (; count >= 8; bytes += 8, count -= 8) {
        std::uint64_t word = 0;
        __builtin_memcpy(&word, bytes, sizeof word);
        add(word, 0);
    }
    for (std::int64_t i = 0; i < count; ++i) { add(bytes[i], ~std::uint64_t{0xff}); }
    seen.add(any != 0, common == UINT64_MAX);
}

/// The smallest byte, and all bits, that rows of a panel have of the keys of a chunk, each key's in the lane
/// that is its place in a vector: rows are compared with each other, and lanes only once for all rows.
struct byte_columns {
    byte_vec lowest = broadcast_byte(0xff);
    byte_vec bits = broadcast_byte(0);

    TILEWISE_INLINE void add(const std::uint8_t* bytes) {
        const byte_vec some = load_bytes(bytes);
        lowest = smallest_bytes(lowest, some);
        bits = bits | some;
    }
    void add_to(sighting& seen) const { seen.add(any_nonzero(bits), !any_zero(lowest)); }
};

TILEWISE_INLINE void look(const byte_row& row, const key_range& keys, sighting& seen, byte_columns& columns) {
    std::int64_t j = keys.first;
    if (row.stride == 1) {
        constexpr auto width = static_cast<std::int64_t>(byte_vec::size);
        for (; j + width <= keys.last; j += width) { columns.add(row.data + j); }
    }
    look_one_by_one(row, j, keys.last, seen);
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

/// The keys of the chunk that starts at `start` which rows of the panel see, by the intervals.
TILEWISE_INLINE key_range keys_in_chunk(const panel& p, std::int64_t start) {
    const key_range here{start, start + contract::chunk_keys};
    return join(intersect(p.range.early, here), intersect(p.range.main, here));
}

/// Chunks that are looked at together, and what their masks say.
struct chunk_sightings {
    int chunks;
    key_range keys[chunks_ahead];  ///< from the task's first one on
    sighting by_key[chunks_ahead];
    sighting by_block[chunks_ahead];
    byte_columns columns[chunks_ahead];
};

/// So many rows of a mask are read side by side: one after the other, the processor would wait for each anew.
inline constexpr std::int64_t rows_together = 8;

/// Reads something of every row first: finding a page of memory, and what is read of it before the processor
/// reads ahead, takes as long as the rest of a row, but for all rows at once hardly longer than for one.
template <class Row>
void look_at_rows(const shape& s, const task& t, const panel& p, chunk_sightings& of,
                  sighting (&seen)[chunks_ahead]) {
    Row rows[max_row_vectors * lanes];
    visit_rows<Row>(s, t, p, [&](std::int64_t r, const Row& row) {
        rows[r] = row;
        touch(row.place_of(of.keys[0].first));
    });
    for (std::int64_t first = 0; first < p.rows; first += rows_together) {
        const std::int64_t last = smaller(first + rows_together, p.rows);
        for (int i = 0; i < of.chunks; ++i) {
            if (is_empty(of.keys[i])) { continue; }
            byte_columns columns = of.columns[i];
            for (std::int64_t r = first; r < last; ++r) { look(rows[r], of.keys[i], seen[i], columns); }
            of.columns[i] = columns;
        }
    }
}

/// What the tensor masks say of the chunk that starts at `start`, of which the panel sees keys, and of some
/// after it.
inline void look_ahead(const shape& s, const task& t, panel& p, std::int64_t start) {
    chunk_sightings of;
    of.chunks = 0;
    for (int i = 0; i < chunks_ahead; ++i) {
        const key_range here = keys_in_chunk(p, start + i * contract::chunk_keys);
        of.keys[i] = {here.first - t.first_key, here.last - t.first_key};
        if (!is_empty(here)) { of.chunks = i + 1; }
    }
    const bool has_keys = has_key_mask(s);
    const bool has_blocks = has_block_mask(s);
    with_key_rows(s, [&]<class Row>() { look_at_rows<Row>(s, t, p, of, of.by_key); });
    if (has_blocks) { look_at_rows<block_row>(s, t, p, of, of.by_block); }
    for (int i = 0; i < of.chunks; ++i) { of.columns[i].add_to(of.by_key[i]); }
    for (int i = 0; i < chunks_ahead; ++i) {
        const bool hidden = (has_keys && !of.by_key[i].some) || (has_blocks && !of.by_block[i].some);
        const bool all = (!has_keys || of.by_key[i].all) && (!has_blocks || of.by_block[i].all);
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
        visit_rows<block_row>(s, t, p, [&](std::int64_t r, const block_row& row) {
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
    with_key_rows(s, [&]<class Row>() {
        visit_rows<Row>(s, t, p, [&](std::int64_t r, const Row& row) {
            for (std::int64_t j = keys.first; j < keys.last; ++j) {
                // Always written: what a mask says cannot be predicted.
                real* const place = tile + (j - keys.first) * width + r;
                *place = row.sees(j - t.first_key) ? *place : value;
            }
        });
    });
    if (has_block_mask(s)) { fill_hidden_blocks(s, t, p, tile, keys, value); }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

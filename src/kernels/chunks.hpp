// The scratch of a task, and the loop over the chunks of keys that its rows see.

#ifndef TILEWISE_SRC_KERNELS_CHUNKS_HPP
#define TILEWISE_SRC_KERNELS_CHUNKS_HPP

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "interface.hpp"
#include "masks.hpp"
#include "panel.hpp"
#include "simd.hpp"
#include "stored_rows.hpp"
#include "tiles.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

inline constexpr std::int64_t panel_width = static_cast<std::int64_t>(panel_vectors) * lanes;

/// Hands out 64-byte aligned parts of the scratch; with no scratch, it counts what is needed.
class arena {
public:
    explicit arena(std::byte* memory) : memory_(memory) {}
    template <class Element>
    Element* take(std::int64_t count) {
        const std::size_t offset = used_;
        used_ += (static_cast<std::size_t>(count) * sizeof(Element) + 63) / 64 * 64;
        return memory_ == nullptr ? nullptr : reinterpret_cast<Element*>(memory_ + offset);
    }
    [[nodiscard]] std::size_t used() const { return used_; }

private:
    std::byte* memory_;
    std::size_t used_ = 0;
};

/// Memory for the scores of one panel and chunk.
struct score_memory {
    real* scores;  ///< [chunk_keys + max_depth][panel width]
    real* copy;    ///< the same, before they become weights; null unless there is a score function
};

struct workspace {
    score_memory scores;
    narrow_memory narrow;
    tile_source k;
    tile_source v;
    std::int64_t panel_count;
    panel* panels;
};

/// So many floats for each vector of a panel, on whole cache lines: a panel takes as much memory as panels of
/// its vectors, so that a block of fewer rows never takes more, however it is cut.
inline real* take_vectors(arena& memory, std::int64_t floats, int vectors) {
    return memory.take<real>(round_up(floats, line_floats) * vectors);
}

inline std::int64_t vectors_of(std::int64_t rows) {
    return round_up((rows + lanes - 1) / lanes, vector_multiple);
}

inline panel lay_out_panel(arena& memory, const narrow_memory& narrow, const shape& s, std::int64_t first_row,
                           std::int64_t rows) {
    panel p{};
    p.first_row = first_row;
    p.rows = rows;
    p.vectors = static_cast<int>(vectors_of(rows));
    p.narrow = rows <= narrow_rows;
    p.narrow_room = narrow;
    p.q = take_vectors(memory, unit_count(s.head_dim) * lanes, p.vectors);
    p.out = take_vectors(memory, round_up(s.value_dim, max_depth) * lanes, p.vectors);
    for (real** values : {&p.state.maximum, &p.state.chunk, &p.state.largest, &p.state.sum, &p.state.keep,
                          &p.state.take, &p.entropy}) {
        *values = take_vectors(memory, lanes, p.vectors);
    }
    p.visible = memory.take<row_keys>(line_floats * p.vectors);
    return p;
}
inline std::size_t panel_bytes(const shape& s, std::int64_t vectors) {
    arena memory(nullptr);
    lay_out_panel(memory, {}, s, 0, lanes * vector_multiple);
    return memory.used() * static_cast<std::size_t>(vectors / vector_multiple);
}

/// So few rows beyond whole vectors get a narrow panel: a vector of their own would cost as much as a full
/// one.
inline constexpr std::int64_t most_rows_beyond = lanes == 16 || narrow_rows == 0 ? narrow_rows : lanes / 4;

/// Rows of the next panel, where so many are left: no more vectors than needed.
inline std::int64_t rows_of_panel(std::int64_t left) {
    if (left >= panel_width) { return panel_width; }
    const std::int64_t beyond = left % lanes;
    return left > lanes && beyond > 0 && beyond <= most_rows_beyond ? left - beyond : left;
}

/// What the panels of a block share: all but the panels themselves.
inline workspace lay_out_shared(arena& memory, const shape& s, std::int64_t rows) {
    workspace w{};
    const std::int64_t keys = smaller(s.max_keys, contract::chunk_keys);
    w.panels = memory.take<panel>(rows / panel_width + 2);  // whole ones, then at most two
    // The scores of narrow panels are in the part that wider ones alone need.
    const std::int64_t narrow_tile = (contract::chunk_keys + max_depth) * lanes;
    const std::int64_t narrow_scores = contract::chunk_keys * lanes;
    w.scores.scores =
        memory.take<real>(larger((keys + max_depth) * panel_width, narrow_tile + narrow_scores));
    w.narrow.scores = w.scores.scores == nullptr ? nullptr : w.scores.scores + narrow_tile;
    if (narrow_rows > 0) {
        w.narrow.gathered = memory.take<real>(lanes * tile_stride(larger(s.head_dim, s.value_dim)));
    }
    w.narrow.sums = memory.take<real>(round_up(narrow_rows, 4) * round_up(s.value_dim, max_depth));
    if (s.scores.function != nullptr) { w.scores.copy = memory.take<real>(keys * panel_width); }
    w.k = {nullptr, s.k_layout, s.head_dim, nullptr, 0, nullptr, s.page_keys, s.table_stride, nullptr};
    w.v = {nullptr, s.v_layout, s.value_dim, nullptr, 0, nullptr, s.page_keys, s.table_stride, nullptr};
    if (s.copy_k) { w.k.buffer = memory.take<real>(keys * tile_stride(unit_count(s.head_dim))); }
    // Keys that begin within a pair lie in one pair more.
    const std::int64_t value_units = unit_count(smaller(keys + unit_elements - 1, contract::chunk_keys));
    if (s.copy_v) { w.v.buffer = memory.take<real>(value_units * tile_stride(s.value_dim)); }
    return w;
}

/// Cuts `rows` query rows into panels.
inline workspace lay_out(arena& memory, const shape& s, std::int64_t first_row, std::int64_t rows) {
    workspace w = lay_out_shared(memory, s, rows);
    for (std::int64_t first = 0; first < rows; ++w.panel_count) {
        const std::int64_t here = rows_of_panel(rows - first);
        w.panels[w.panel_count] = lay_out_panel(memory, w.narrow, s, first_row + first, here);
        first += here;
    }
    return w;
}

/// Scratch for a block of so many rows, and for any of fewer.
inline std::size_t block_scratch_bytes(const shape& s, std::int64_t rows) {
    arena memory(nullptr);
    lay_out_shared(memory, s, rows);
    return memory.used() + panel_bytes(s, vectors_of(rows));
}

/// Points a source to the keys or values of a task.
inline void point_to(const task& t, const void* data, const float* scales, tile_source& source) {
    source.data = data;
    source.scales = scales;
    source.first_key = t.first_key;
    source.pages = t.pages;
}
inline void point_to(const task& t, workspace& w) {
    point_to(t, t.k, t.k_scales, w.k);
    point_to(t, t.v, t.v_scales, w.v);
}

/// Where narrow panels read rows.
struct panel_rows {
    tile_source source;
    std::int64_t last;  ///< key position; none from this one on is there
};

/// What the panels of a task see of K and V in a chunk.
struct chunk {
    key_range keys;
    tile k;  ///< units; without data if all panels read rows as they are stored
    tile v;  ///< the same; a row has the values of a unit of keys
    panel_rows k_rows;
    panel_rows v_rows;
    enum class finiteness : unsigned char { unknown, yes, no } v_is_finite;
};

/// Whether there is no panel but a narrow one, so that K and V need not be converted for others.
TILEWISE_INLINE bool is_narrow(const workspace& w) { return w.panel_count == 1 && w.panels->narrow; }

/// The rows of a chunk's tiles that a panel sees.
TILEWISE_INLINE tile seen_keys(const panel& p, const chunk& c) {
    return {c.k.data + (p.seen.first - c.keys.first) * c.k.stride, c.k.stride};
}
TILEWISE_INLINE tile seen_values(const panel& p, const chunk& c) {
    const std::int64_t first = p.seen.first / unit_elements - c.keys.first / unit_elements;
    return {c.v.data + first * c.v.stride, c.v.stride};
}
/// The same as they are stored.
TILEWISE_INLINE stored_rows seen_rows(const panel_rows& of, const panel& p) {
    return rows_at(of.source, p.seen, smaller(p.range.main.last, of.last), p.narrow_room.gathered);
}

/// Loads a tile unless narrow panels alone can do without.
inline tile load_keys(const workspace& w, const key_range& keys) {
    if (is_narrow(w) && can_be_read_as_stored(w.k)) { return {nullptr, 0}; }
    return load_tile(w.k, keys.first, keys.last - keys.first);
}
/// Narrow panels never read pairs of values from a tile.
inline tile load_values(const workspace& w, const key_range& keys) {
    if (is_narrow(w) && (in_pairs || can_be_read_as_stored(w.v))) { return {nullptr, 0}; }
    return load_value_tile(w.v, keys.first, keys.last - keys.first);
}

/// Where narrow panels read rows: in the tile, if it has been copied for all.
inline panel_rows rows_for_panels(const tile_source& source, const tile& loaded, const key_range& keys) {
    if (loaded.data == nullptr || source.buffer == nullptr) { return {source, INT64_MAX}; }
    return {source_of(loaded, unit_count(source.dim), keys.first), keys.last};
}

inline bool is_finite(const shape& s, const panel& p, chunk& c) {
    if (c.v_is_finite == chunk::finiteness::unknown) {
        const bool finite = c.v.data == nullptr ? all_finite(seen_rows(c.v_rows, p), p.narrow_room.gathered)
                                                : all_finite(c.v, unit_count(c.keys), s.value_dim);
        c.v_is_finite = finite ? chunk::finiteness::yes : chunk::finiteness::no;
    }
    return c.v_is_finite == chunk::finiteness::yes;
}

/// Finds what each panel sees of a chunk, by intervals and tensors. Returns the keys that some panel sees.
inline key_range look_at_chunk(const shape& s, const task& t, const workspace& w, std::int64_t start) {
    key_range keys{0, 0};
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        panel& p = w.panels[i];
        p.seen = keys_in_chunk(p, start);
        if (is_empty(p.seen)) { continue; }
        p.masks = look_at_masks(s, t, p, start);
        if (p.masks == tile_visibility::none) {
            p.seen = {0, 0};
            continue;
        }
        keys = join(keys, p.seen);
    }
    return keys;
}

/// Calls visit(panel, chunk) for all panels that see keys of the chunk that starts at `start`. (Nothing
/// prefetches the next one: the processor's own prefetchers follow rows that are read in place. Requests of
/// ours made panels of 16 rows up to 15 % slower, and gained nothing where rows are copied.)
template <class Visit>
void visit_chunk(const shape& s, const task& t, const workspace& w, std::int64_t start, Visit& visit) {
    const key_range keys = look_at_chunk(s, t, w, start);
    if (is_empty(keys)) { return; }
    chunk c{};
    c.keys = keys;
    c.k = load_keys(w, keys);
    c.v = load_values(w, keys);
    c.k_rows = rows_for_panels(w.k, c.k, keys);
    c.v_rows = rows_for_panels(w.v, in_pairs ? tile{nullptr, 0} : c.v, keys);
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        if (!is_empty(w.panels[i].seen)) { visit(w.panels[i], c); }
    }
}

/// The first key at or after `from` that some row of the task sees, by the intervals; INT64_MAX if none.
inline std::int64_t next_key(const workspace& w, std::int64_t from) {
    std::int64_t next = INT64_MAX;
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        const key_range ranges[2] = {w.panels[i].range.early, w.panels[i].range.main};
        for (const key_range& range : ranges) {
            if (range.last > from && !is_empty(range)) { next = smaller(next, larger(range.first, from)); }
        }
    }
    return next;
}

/// The same for all chunks that some row of the task sees, in order.
template <class Visit>
void visit_chunks(const shape& s, const task& t, const workspace& w, Visit visit) {
    std::int64_t key = next_key(w, 0);
    while (key != INT64_MAX) {
        const std::int64_t start = block_start(key, contract::chunk_keys);
        visit_chunk(s, t, w, start, visit);
        key = next_key(w, start + contract::chunk_keys);
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

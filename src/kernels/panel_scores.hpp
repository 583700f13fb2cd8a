// The scores of one panel against the keys that it sees of a chunk: dot products, modifiers, masks and
// maximum (contract steps 1 to 3).

#ifndef TILEWISE_SRC_KERNELS_PANEL_SCORES_HPP
#define TILEWISE_SRC_KERNELS_PANEL_SCORES_HPP

#include <cstdint>

#include "chunks.hpp"
#include "interface.hpp"
#include "masks.hpp"
#include "modifiers.hpp"
#include "panel.hpp"
#include "scores.hpp"
#include "simd.hpp"
#include "tiles.hpp"
#include "visibility.hpp"
#if TILEWISE_NARROW_PANELS
#    include "narrow.hpp"
#endif

namespace tilewise::kernels::TILEWISE_ISA {

/// What may hide keys of a tile from rows of a panel.
struct hiding {
    bool by_mask;
    bool by_bias;
    bool by_function;
    [[nodiscard]] bool some() const { return by_mask || by_bias || by_function; }
};

/// Whether rows that do not see a key of this tile are among the panel's.
TILEWISE_INLINE bool partly_visible(const panel& p, const key_range& keys) {
    return p.range.all.first > keys.first || p.range.all.last < keys.last;
}

template <int Vectors>
void find_maximum(const real* scores, std::int64_t keys, real* row_maximum) {
    for (int n = 0; n < Vectors; ++n) {
        vec largest = broadcast(-__builtin_inff());
        for (std::int64_t j = 0; j < keys; ++j) {
            largest = maximum(load(scores + (j * Vectors + n) * lanes), largest);
        }
        store(row_maximum + n * lanes, largest);
    }
}

/// Writes `value` where a mask hides a key of the panel's tile from a row.
inline void fill_masked_keys(const shape& s, const task& t, const panel& p, real* tile, real value) {
    fill_invisible(tile, static_cast<std::int64_t>(p.vectors) * lanes, p.visible, p.seen.first,
                   p.seen.last - p.seen.first, value);
    if (has_tensor_masks(s)) { fill_masked(s, t, p, tile, p.seen, value); }
}

/// Writes `value` to the tile of weights where a key is hidden from a row, by whatever means.
inline void fill_hidden(const shape& s, const task& t, const panel& p, const hiding& by,
                        const score_memory& memory, real value) {
    if (by.by_mask) { fill_masked_keys(s, t, p, memory.scores, value); }
    if (by.by_bias) { fill_where_bias_masks(s, t, p, memory.scores, p.seen, value); }
    if (by.by_function) {
        const std::int64_t count = (p.seen.last - p.seen.first) * p.vectors * lanes;
        for (std::int64_t i = 0; i < count; ++i) {
            memory.scores[i] = memory.copy[i] == -__builtin_inff() ? value : memory.scores[i];
        }
    }
}

/// Scores of the keys p.seen, -inf where they are hidden; p.state.chunk becomes their maximum.
template <int Vectors>
hiding score_panel(const shape& s, const task& t, const panel& p, const chunk& c,
                   const score_memory& memory) {
    const std::int64_t keys = p.seen.last - p.seen.first;
#if TILEWISE_NARROW_PANELS
    if (Vectors == 1 && p.narrow) {
        narrow_scores(p.q, seen_rows(c.k_rows, p), p.rows, p.narrow_room.scores);
        narrow_to_lanes(p.narrow_room.scores, keys, p.rows, memory.scores);
        find_maximum<1>(memory.scores, keys, p.state.chunk);
    } else
#endif
    {
        score_tile<Vectors>(p.q, seen_keys(p, c), keys, unit_count(s.head_dim), memory.scores, p.state.chunk);
    }
    hiding by{partly_visible(p, p.seen) || p.masks == tile_visibility::some, false,
              s.scores.function != nullptr};
    const bool modified = has_modifiers(s.scores);
    if (modified) { by.by_bias = modify_scores<Vectors>(s, t, p, memory.scores, p.seen); }
    if (by.by_mask) { fill_masked_keys(s, t, p, memory.scores, -__builtin_inff()); }
    if (by.by_mask || modified) { find_maximum<Vectors>(memory.scores, keys, p.state.chunk); }
    if (by.by_function) {
        __builtin_memcpy(memory.copy, memory.scores,
                         static_cast<std::size_t>(keys * Vectors * lanes) * sizeof(real));
    }
    return by;
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

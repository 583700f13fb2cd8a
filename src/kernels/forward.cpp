// The forward tile loop. Compiled once per instruction set; src/attention.cpp calls it, through the table
// at the end, for each task: load tile -> scores -> mask -> softmax -> values -> epilogue.
//
// No std containers, no allocation, no exceptions, no threads here.

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "interface.hpp"
#include "panel.hpp"
#include "scores.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "tiles.hpp"
#include "values.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

namespace {

constexpr std::int64_t panel_width = static_cast<std::int64_t>(max_row_vectors) * lanes;

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

/// Scratch that the panels of a task share.
struct shared_tiles {
    float* scores;  // [chunk_keys + max_depth][panel_width]
    float* k;       // [chunk_keys][tile_stride(head_dim)]
    float* v;       // [chunk_keys][tile_stride(value_dim)]
};

struct workspace {
    shared_tiles tiles;
    std::int64_t panel_count;
    panel* panels;
};

/// Cuts `rows` query rows into panels, the last one no wider than needed.
workspace lay_out(arena& memory, const shape& s, std::int64_t first_row, std::int64_t rows) {
    workspace w{};
    const std::int64_t keys = smaller(s.keys, contract::chunk_keys);
    w.panel_count = (rows + panel_width - 1) / panel_width;
    w.panels = memory.take<panel>(w.panel_count);
    w.tiles.scores = memory.take<float>((keys + max_depth) * panel_width);
    w.tiles.k = memory.take<float>(keys * tile_stride(s.head_dim));
    w.tiles.v = memory.take<float>(keys * tile_stride(s.value_dim));
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        panel p{};
        p.first_row = first_row + i * panel_width;
        p.rows = smaller(panel_width, rows - i * panel_width);
        p.vectors = static_cast<int>((p.rows + lanes - 1) / lanes);
        const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
        p.q = memory.take<float>(s.head_dim * width);
        p.out = memory.take<float>(round_up(s.value_dim, max_depth) * width);
        p.state = {memory.take<float>(width), memory.take<float>(width), memory.take<float>(width),
                   memory.take<float>(width), memory.take<float>(width)};
        p.visible = memory.take<key_range>(width);
        if (w.panels != nullptr) { w.panels[i] = p; }
    }
    return w;
}

/// One tile of keys and values as the panels of a task see it.
struct chunk {
    std::int64_t first;
    std::int64_t keys;
    tile k;
    tile v;
    bool v_is_finite;
};

/// Whether rows that do not see a key of this tile are among the panel's.
bool partly_visible(const panel& p, const chunk& c) {
    return p.range.all.first > c.first || p.range.all.last < c.first + c.keys;
}

template <int Vectors>
void find_maximum(const float* scores, std::int64_t keys, float* row_maximum) {
    for (int n = 0; n < Vectors; ++n) {
        vec largest = broadcast(-__builtin_inff());
        for (std::int64_t j = 0; j < keys; ++j) {
            largest = maximum(load(scores + (j * Vectors + n) * lanes), largest);
        }
        store(row_maximum + n * lanes, largest);
    }
}

void multiply_scores(float* scores, std::int64_t count, float scale) {
    for (std::int64_t i = 0; i < count; ++i) { scores[i] = scores[i] * scale; }
}

/// One panel against one tile.
template <int Vectors>
void attend(const shape& s, const panel& p, const chunk& c, float* scores) {
    score_tile<Vectors>(p.q, c.k.data, c.k.stride, c.keys, s.head_dim, scores, p.state.chunk);
    const std::int64_t width = static_cast<std::int64_t>(Vectors) * lanes;
    const bool partial = partly_visible(p, c);
    if (s.multiply_scores) { multiply_scores(scores, c.keys * width, s.scale); }
    if (partial) { fill_invisible(scores, width, p.visible, c.first, c.keys, -__builtin_inff()); }
    if (partial || s.multiply_scores) { find_maximum<Vectors>(scores, c.keys, p.state.chunk); }
    softmax_tile<Vectors>(scores, c.keys, s.exponent, p.state);
    if (partial && !c.v_is_finite) {
        fill_invisible(scores, width, p.visible, c.first, c.keys, masked_weight);
        value_tile_carefully<Vectors>(scores, c.v.data, c.v.stride, c.keys, s.value_dim, p.state.keep,
                                      p.state.take, p.out);
    } else {
        value_tile<Vectors>(scores, c.v.data, c.v.stride, c.keys, s.value_dim, p.state.keep, p.state.take,
                            p.out);
    }
}

void attend(const shape& s, const panel& p, const chunk& c, float* scores) {
    switch (p.vectors) {
        case 1:
            attend<1>(s, p, c, scores);
            break;
        case 2:
            attend<2>(s, p, c, scores);
            break;
        default:
            attend<3>(s, p, c, scores);
            break;
    }
}

/// The keys of the tile that starts at chunk position `start` which some row of the panel sees.
key_range seen_keys(const panel& p, std::int64_t start) {
    return {larger(start, p.range.some.first), smaller(start + contract::chunk_keys, p.range.some.last)};
}

/// While panel `i` of a chunk is computed, its share of the next chunk is on its way: the processor's own
/// prefetchers do not see that far, since a chunk of K and one of V are used in turn.
void prefetch_share(const shape& s, const task& t, const workspace& w, std::int64_t next, std::int64_t i) {
    const std::int64_t keys = smaller(s.keys - next, contract::chunk_keys);
    const std::int64_t begin = keys * i / w.panel_count;
    const std::int64_t end = keys * (i + 1) / w.panel_count;
    prefetch_rows(t.k, next + begin, end - begin, s.head_dim);
    prefetch_rows(t.v, next + begin, end - begin, s.value_dim);
}

/// All panels of a task against the chunk that starts at key `start`.
void attend_chunk(const shape& s, const task& t, const workspace& w, std::int64_t start, std::int64_t end) {
    key_range seen{INT64_MAX, 0};
    bool partial = false;
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        const key_range keys = seen_keys(w.panels[i], start);
        if (keys.first >= keys.last) { continue; }
        seen = {smaller(seen.first, keys.first), larger(seen.last, keys.last)};
        partial = partial || partly_visible(w.panels[i], {keys.first, keys.last - keys.first, {}, {}, true});
    }
    if (seen.first >= seen.last) { return; }
    const std::int64_t count = seen.last - seen.first;
    const tile k = load_tile(t.k, seen.first, count, s.head_dim, false, w.tiles.k);
    const tile v = load_tile(t.v, seen.first, count, s.value_dim, true, w.tiles.v);
    const bool finite = !partial || all_finite(v, count, s.value_dim);
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        const key_range keys = seen_keys(w.panels[i], start);
        if (keys.first >= keys.last) { continue; }
        const std::int64_t skip = keys.first - seen.first;
        const chunk c{keys.first,
                      keys.last - keys.first,
                      {k.data + skip * k.stride, k.stride},
                      {v.data + skip * v.stride, v.stride},
                      finite};
        const std::int64_t next = start + contract::chunk_keys;
        if (next < end) { prefetch_share(s, t, w, next, i); }
        attend(s, w.panels[i], c, w.tiles.scores);
    }
}

void forward(const shape& s, const task& t, std::byte* scratch) {
    arena memory(scratch);
    workspace w = lay_out(memory, s, t.first_row, t.rows);
    key_range seen{INT64_MAX, 0};
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        panel& p = w.panels[i];
        load_queries(s, t.q, p);
        start_rows(s, p);
        seen = {smaller(seen.first, p.range.some.first), larger(seen.last, p.range.some.last)};
    }
    for (std::int64_t start = seen.first / contract::chunk_keys * contract::chunk_keys; start < seen.last;
         start += contract::chunk_keys) {
        attend_chunk(s, t, w, start, seen.last);
    }
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        divide_rows(s, w.panels[i]);
        store_rows(s, t, w.panels[i]);
    }
}

std::size_t scratch_bytes(const shape& s) {
    arena memory(nullptr);
    lay_out(memory, s, 0, s.block_rows);
    return memory.used();
}

}  // namespace

#define TILEWISE_STRINGIFY(name) #name
#define TILEWISE_NAME(name) TILEWISE_STRINGIFY(name)

extern const table kernels;
const table kernels{TILEWISE_NAME(TILEWISE_ISA), static_cast<int>(panel_width), scratch_bytes, forward};

}  // namespace tilewise::kernels::TILEWISE_ISA

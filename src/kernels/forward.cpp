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

struct workspace {
    float* scores;  // [chunk_keys + max_depth][panel_width]
    tile_source k;
    tile_source v;
    std::int64_t panel_count;
    panel* panels;
};

/// Cuts `rows` query rows into panels, the last one no wider than needed.
workspace lay_out(arena& memory, const shape& s, std::int64_t first_row, std::int64_t rows) {
    workspace w{};
    const std::int64_t keys = smaller(s.keys, contract::chunk_keys);
    w.panel_count = (rows + panel_width - 1) / panel_width;
    w.panels = memory.take<panel>(w.panel_count);
    w.scores = memory.take<float>((keys + max_depth) * panel_width);
    w.k = {nullptr, s.k_layout, s.head_dim, nullptr};
    w.v = {nullptr, s.v_layout, s.value_dim, nullptr};
    if (s.copy_k) { w.k.buffer = memory.take<float>(keys * tile_stride(s.head_dim)); }
    if (s.copy_v) { w.v.buffer = memory.take<float>(keys * tile_stride(s.value_dim)); }
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

/// One tile of keys and values as a panel sees it.
struct chunk {
    std::int64_t first;
    std::int64_t keys;
    tile k;
    tile v;
    bool v_is_finite;
};

/// Whether rows that do not see a key of this tile are among the panel's.
bool partly_visible(const panel& p, const key_range& keys) {
    return p.range.all.first > keys.first || p.range.all.last < keys.last;
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
void attend(const shape& s, const panel& p, const chunk& c, float* scores, chunk_prefetcher& next) {
    score_tile<Vectors>(p.q, c.k, c.keys, s.head_dim, scores, p.state.chunk, next);
    const std::int64_t width = static_cast<std::int64_t>(Vectors) * lanes;
    const bool partial = partly_visible(p, {c.first, c.first + c.keys});
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

void attend(const shape& s, const panel& p, const chunk& c, float* scores, chunk_prefetcher& next) {
    switch (p.vectors) {
        case 1:
            attend<1>(s, p, c, scores, next);
            break;
        case 2:
            attend<2>(s, p, c, scores, next);
            break;
        default:
            attend<3>(s, p, c, scores, next);
            break;
    }
}

/// The keys of the chunk that starts at `start` which some row of the panel sees.
key_range seen_keys(const panel& p, std::int64_t start) {
    return {larger(start, p.range.some.first), smaller(start + contract::chunk_keys, p.range.some.last)};
}

/// What the panels of a task see of a chunk.
struct chunk_view {
    key_range keys{0, 0};  // empty if none sees any
    bool partial = false;  // some row of some panel does not see all that its panel computes
    std::int64_t micro_tiles = 0;
};

chunk_view view_chunk(const workspace& w, std::int64_t start) {
    chunk_view view;
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        const panel& p = w.panels[i];
        const key_range keys = seen_keys(p, start);
        if (is_empty(keys)) { continue; }
        view.keys = join(view.keys, keys);
        view.partial = view.partial || partly_visible(p, keys);
        view.micro_tiles += (keys.last - keys.first + key_depth[p.vectors] - 1) / key_depth[p.vectors];
    }
    return view;
}

/// All panels of a task against the chunk that starts at `start`.
void attend_chunk(const shape& s, const workspace& w, std::int64_t start, const chunk_view& view,
                  chunk_prefetcher& next) {
    const std::int64_t count = view.keys.last - view.keys.first;
    const tile k = load_tile(w.k, view.keys.first, count);
    const tile v = load_tile(w.v, view.keys.first, count);
    const bool finite = !view.partial || all_finite(v, count, s.value_dim);
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        const key_range keys = seen_keys(w.panels[i], start);
        if (is_empty(keys)) { continue; }
        const std::int64_t skip = keys.first - view.keys.first;
        const chunk c{keys.first,
                      keys.last - keys.first,
                      {k.data + skip * k.stride, k.stride},
                      {v.data + skip * v.stride, v.stride},
                      finite};
        attend(s, w.panels[i], c, w.scores, next);
    }
}

/// All chunks that some row of the task sees, in order.
void attend_chunks(const shape& s, const workspace& w, std::int64_t first, std::int64_t last) {
    std::int64_t start = first / contract::chunk_keys * contract::chunk_keys;
    chunk_view view = view_chunk(w, start);
    while (start < last) {
        const std::int64_t next_start = start + contract::chunk_keys;
        const chunk_view next_view = view_chunk(w, next_start);
        if (!is_empty(view.keys)) {
            chunk_prefetcher next(w.k, w.v, next_view.keys.first, next_view.keys.last, view.micro_tiles);
            attend_chunk(s, w, start, view, next);
        }
        start = next_start;
        view = next_view;
    }
}

void forward(const shape& s, const task& t, std::byte* scratch) {
    arena memory(scratch);
    workspace w = lay_out(memory, s, t.first_row, t.rows);
    w.k.data = t.k;
    w.v.data = t.v;
    key_range seen{0, 0};
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        panel& p = w.panels[i];
        load_queries(s, t.q, p);
        start_rows(s, p);
        seen = join(seen, p.range.some);
    }
    if (!is_empty(seen)) { attend_chunks(s, w, seen.first, seen.last); }
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
const table kernels{TILEWISE_NAME(TILEWISE_ISA), static_cast<int>(panel_width), max_depth, scratch_bytes,
                    forward};

}  // namespace tilewise::kernels::TILEWISE_ISA

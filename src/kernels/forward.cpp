// The forward tile loop. Compiled once per instruction set; src/attention.cpp calls it, through the table
// at the end, for each task: load tile -> scores -> mask -> softmax -> values -> epilogue.
//
// No std containers, no allocation, no exceptions, no threads here.

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "interface.hpp"
#include "masks.hpp"
#include "modifiers.hpp"
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
    const std::int64_t keys = smaller(s.max_keys, contract::chunk_keys);
    w.panel_count = (rows + panel_width - 1) / panel_width;
    w.panels = memory.take<panel>(w.panel_count);
    w.scores = memory.take<float>((keys + max_depth) * panel_width);
    w.k = {nullptr, s.k_layout, s.head_dim, nullptr, nullptr};
    w.v = {nullptr, s.v_layout, s.value_dim, nullptr, nullptr};
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
        p.visible = memory.take<row_keys>(width);
        if (w.panels != nullptr) { w.panels[i] = p; }
    }
    return w;
}

/// The tile of a chunk that the panels of a task see, and whether its values are finite, once that matters.
struct chunk {
    key_range keys;
    tile k;
    tile v;
    enum class finiteness : unsigned char { unknown, yes, no } v_is_finite;
};

bool is_finite(const shape& s, chunk& c) {
    if (c.v_is_finite == chunk::finiteness::unknown) {
        c.v_is_finite = all_finite(c.v, c.keys.last - c.keys.first, s.value_dim) ? chunk::finiteness::yes
                                                                                 : chunk::finiteness::no;
    }
    return c.v_is_finite == chunk::finiteness::yes;
}

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

/// Writes `value` where a key is masked for a row, in whatever way.
void fill_hidden(const shape& s, const task& t, const panel& p, float* tile, float value) {
    fill_invisible(tile, static_cast<std::int64_t>(p.vectors) * lanes, p.visible, p.seen.first,
                   p.seen.last - p.seen.first, value);
    if (has_tensor_masks(s)) { fill_masked(s, t, p, tile, p.seen, value); }
}

/// One panel against the keys of the chunk that it sees.
template <int Vectors>
void attend(const shape& s, const task& t, const panel& p, chunk& c, float* scores, chunk_prefetcher& next) {
    const std::int64_t keys = p.seen.last - p.seen.first;
    const std::int64_t skip = p.seen.first - c.keys.first;
    const float* const v = c.v.data + skip * c.v.stride;
    score_tile<Vectors>(p.q, {c.k.data + skip * c.k.stride, c.k.stride}, keys, s.head_dim, scores,
                        p.state.chunk, next);
    const bool modified = has_modifiers(s.scores);
    const bool masked_by_bias = modified && modify_scores<Vectors>(s, t, p, scores, p.seen);
    const bool masked = partly_visible(p, p.seen) || p.masks == tile_visibility::some;
    if (masked) { fill_hidden(s, t, p, scores, -__builtin_inff()); }
    if (masked || modified) { find_maximum<Vectors>(scores, keys, p.state.chunk); }
    softmax_tile<Vectors>(scores, keys, s.scores.exponent, p.state);
    if ((masked || masked_by_bias) && !is_finite(s, c)) {
        fill_hidden(s, t, p, scores, masked_weight);
        if (masked_by_bias) { fill_where_bias_masks(s, t, p, scores, p.seen, masked_weight); }
        value_tile_carefully<Vectors>(scores, v, c.v.stride, keys, s.value_dim, p.state.keep, p.state.take,
                                      p.out);
    } else {
        value_tile<Vectors>(scores, v, c.v.stride, keys, s.value_dim, p.state.keep, p.state.take, p.out);
    }
}

void attend(const shape& s, const task& t, const panel& p, chunk& c, float* scores, chunk_prefetcher& next) {
    switch (p.vectors) {
        case 1:
            attend<1>(s, t, p, c, scores, next);
            break;
        case 2:
            attend<2>(s, t, p, c, scores, next);
            break;
        default:
            attend<3>(s, t, p, c, scores, next);
            break;
    }
}

/// The keys of a chunk that rows of a task see, by the intervals.
key_range keys_in_chunk(const workspace& w, std::int64_t start) {
    key_range keys{0, 0};
    for (std::int64_t i = 0; i < w.panel_count; ++i) { keys = join(keys, keys_in_chunk(w.panels[i], start)); }
    return keys;
}

/// Finds what each panel sees of a chunk, by intervals and tensors. Returns the keys that some panel sees,
/// and counts its micro-tiles.
key_range look_at_chunk(const shape& s, const task& t, const workspace& w, std::int64_t start,
                        std::int64_t& micro_tiles) {
    key_range keys{0, 0};
    micro_tiles = 0;
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
        micro_tiles += (p.seen.last - p.seen.first + key_depth[p.vectors] - 1) / key_depth[p.vectors];
    }
    return keys;
}

/// All panels of a task against the chunk that starts at `start`; the next chunk's keys are prefetched.
void attend_chunk(const shape& s, const task& t, const workspace& w, std::int64_t start,
                  const key_range& next_keys) {
    std::int64_t micro_tiles = 0;
    const key_range keys = look_at_chunk(s, t, w, start, micro_tiles);
    if (is_empty(keys)) { return; }
    const std::int64_t count = keys.last - keys.first;
    chunk c{keys, load_tile(w.k, keys.first, count), load_tile(w.v, keys.first, count),
            chunk::finiteness::unknown};
    chunk_prefetcher next(w.k, w.v, next_keys.first, next_keys.last, micro_tiles);
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        if (!is_empty(w.panels[i].seen)) { attend(s, t, w.panels[i], c, w.scores, next); }
    }
}

/// The first key at or after `from` that some row of the task sees, by the intervals; INT64_MAX if none.
std::int64_t next_key(const workspace& w, std::int64_t from) {
    std::int64_t next = INT64_MAX;
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        const key_range ranges[2] = {w.panels[i].range.early, w.panels[i].range.main};
        for (const key_range& range : ranges) {
            if (range.last > from && !is_empty(range)) { next = smaller(next, larger(range.first, from)); }
        }
    }
    return next;
}

/// All chunks that some row of the task sees, in order.
void attend_chunks(const shape& s, const task& t, const workspace& w) {
    std::int64_t key = next_key(w, 0);
    while (key != INT64_MAX) {
        const std::int64_t start = block_start(key, contract::chunk_keys);
        key = next_key(w, start + contract::chunk_keys);
        const key_range next_keys =
            key == INT64_MAX ? key_range{0, 0} : keys_in_chunk(w, block_start(key, contract::chunk_keys));
        attend_chunk(s, t, w, start, next_keys);
    }
}

void forward(const shape& s, const task& t, std::byte* scratch) {
    arena memory(scratch);
    workspace w = lay_out(memory, s, t.first_row, t.rows);
    w.k.data = t.k;
    w.v.data = t.v;
    w.k.scales = t.k_scales;
    w.v.scales = t.v_scales;
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        load_queries(s, t.q, w.panels[i]);
        start_rows(s, t, w.panels[i]);
    }
    attend_chunks(s, t, w);
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

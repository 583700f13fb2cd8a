// Which keys a row sees. A mask is an interval of keys per row; masks compose by intersection, and a tile
// is invisible (skipped), fully visible (no mask work) or partly visible (filled).

#ifndef TILEWISE_SRC_KERNELS_VISIBILITY_HPP
#define TILEWISE_SRC_KERNELS_VISIBILITY_HPP

#include <cstdint>

#include "interface.hpp"
#include "products.hpp"
#include "simd.hpp"
#include "tiles.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Keys first .. last - 1; empty where last <= first.
struct key_range {
    std::int64_t first;
    std::int64_t last;
};

TILEWISE_INLINE bool is_empty(const key_range& range) { return range.last <= range.first; }

TILEWISE_INLINE key_range intersect(const key_range& a, const key_range& b) {
    const key_range both{larger(a.first, b.first), smaller(a.last, b.last)};
    return is_empty(both) ? key_range{0, 0} : both;
}

/// The smallest range that holds both.
TILEWISE_INLINE key_range join(const key_range& a, const key_range& b) {
    if (is_empty(a)) { return b; }
    if (is_empty(b)) { return a; }
    return {smaller(a.first, b.first), larger(a.last, b.last)};
}

/// Units of V that keys lie in, which begin at positions that are multiples of a unit.
TILEWISE_INLINE std::int64_t unit_count(const key_range& keys) {
    return unit_count(keys.last) - keys.first / unit_elements;
}
/// Whether the first key is not the first of its unit.
TILEWISE_INLINE bool starts_in_pair(const key_range& keys) { return keys.first % unit_elements != 0; }
/// Whether a unit has keys beside these.
TILEWISE_INLINE bool has_part_of_pair(const key_range& keys) {
    return starts_in_pair(keys) || keys.last % unit_elements != 0;
}

/// What a row sees: at most two ranges, since a prefix may lie before a window.
struct row_keys {
    key_range early;
    key_range main;
};

/// Where a query token's row of a grid begins, in elements.
TILEWISE_INLINE std::int64_t row_offset(const grid& g, const task& t, std::int64_t token, std::int64_t head) {
    return t.batch * g.batch_stride + (t.first_head + head) * g.head_stride + token * g.query_stride;
}
template <class Element>
TILEWISE_INLINE const Element* row_of(const grid& g, const task& t, std::int64_t token, std::int64_t head) {
    return static_cast<const Element*>(g.data) + row_offset(g, t, token, head);
}

/// The document, as a range of positions, that a position is in; documents are few, or searched by halves.
inline key_range document_of(const interval_rules& rules, std::int64_t position) {
    std::int64_t low = 0;
    std::int64_t high = rules.document_count;  // boundaries[low] <= position < boundaries[high]
    if (position < rules.documents[0] || position >= rules.documents[high - 1]) { return {0, 0}; }
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (rules.documents[middle] <= position ? low : high) = middle;
    }
    return {rules.documents[low], rules.documents[low + 1]};
}

TILEWISE_INLINE std::int64_t block_start(std::int64_t position, std::int64_t size) {
    const std::int64_t into = position % size;
    return position - (into < 0 ? into + size : into);
}

/// position + distance, for distance >= 0, or the largest number.
TILEWISE_INLINE std::int64_t add_open(std::int64_t position, std::int64_t distance) {
    return position > INT64_MAX - 1 - distance ? INT64_MAX - 1 : position + distance;
}

/// The keys that a query token sees.
inline row_keys visible_keys(const shape& s, const task& t, std::int64_t token, std::int64_t head) {
    const interval_rules& rules = s.intervals;
    const std::int64_t position = t.query_position + token;
    key_range all{larger(t.first_key, t.begin), smaller(t.first_key + t.keys, t.end)};
    if (rules.attention_chunk > 0) {
        const std::int64_t first = block_start(position, rules.attention_chunk);
        all = intersect(all, {first, add_open(first, rules.attention_chunk)});
    }
    if (rules.documents != nullptr) { all = intersect(all, document_of(rules, position)); }
    if (rules.first_key.data != nullptr) {
        all = intersect(all, {*row_of<std::int32_t>(rules.first_key, t, token, head),
                              *row_of<std::int32_t>(rules.last_key, t, token, head)});
    }
    key_range near{position - smaller(rules.window_left, position),
                   add_open(position, rules.window_right) + 1};
    if (rules.causal) { near.last = smaller(near.last, position + 1); }
    row_keys keys{intersect(all, {0, rules.prefix}), intersect(all, near)};
    if (is_empty(keys.main) || keys.main.first <= keys.early.last) {
        keys = {{0, 0}, is_empty(keys.early) ? keys.main : join(keys.early, keys.main)};
    }
    return keys;
}

/// What the rows of a panel see: the ranges that hold all that any row sees, and the one that every row sees.
struct panel_range {
    key_range early;
    key_range main;
    key_range all;
};

TILEWISE_INLINE panel_range range_of(const row_keys* rows, std::int64_t count) {
    panel_range range{{0, 0}, {0, 0}, {0, INT64_MAX}};
    for (std::int64_t r = 0; r < count; ++r) {
        range.early = join(range.early, rows[r].early);
        range.main = join(range.main, rows[r].main);
        range.all = {larger(range.all.first, rows[r].main.first), smaller(range.all.last, rows[r].main.last)};
    }
    return range;
}

/// Writes `value` where a row does not see a key. The tile holds keys first_key .. first_key + keys - 1.
inline void fill_invisible(real* tile,  // [keys][width]
                           std::int64_t width, const row_keys* rows, std::int64_t first_key,
                           std::int64_t keys, real value) {
    for (std::int64_t r = 0; r < width; ++r) {
        std::int64_t j = 0;
        const key_range ranges[2] = {rows[r].early, rows[r].main};
        for (const key_range& seen : ranges) {
            if (is_empty(seen)) { continue; }
            const std::int64_t begin = smaller(seen.first - first_key, keys);
            for (; j < begin; ++j) { tile[j * width + r] = value; }
            j = larger(j, smaller(seen.last - first_key, keys));
        }
        for (; j < keys; ++j) { tile[j * width + r] = value; }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

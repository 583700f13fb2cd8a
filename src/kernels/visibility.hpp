// Which keys a row sees. A mask is an interval of keys per row; masks compose by intersection, and a tile
// is invisible (skipped), fully visible (no mask work) or partly visible (filled).

#ifndef TILEWISE_SRC_KERNELS_VISIBILITY_HPP
#define TILEWISE_SRC_KERNELS_VISIBILITY_HPP

#include <cstdint>

#include "interface.hpp"
#include "simd.hpp"
#include "tiles.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Keys first .. last - 1; empty where last <= first.
struct key_range {
    std::int64_t first;
    std::int64_t last;
};

/// The keys that a query token sees.
TILEWISE_INLINE key_range visible_keys(const shape& s, std::int64_t token) {
    key_range range{0, s.keys};
    if (s.causal) { range.last = smaller(range.last, token + s.causal_offset + 1); }
    return range.last > range.first ? range : key_range{0, 0};
}

TILEWISE_INLINE bool is_empty(const key_range& range) { return range.last <= range.first; }

/// The smallest range that holds both.
TILEWISE_INLINE key_range join(const key_range& a, const key_range& b) {
    if (is_empty(a)) { return b; }
    if (is_empty(b)) { return a; }
    return {smaller(a.first, b.first), larger(a.last, b.last)};
}

/// The keys that any row of a panel sees, and those that all its rows see.
struct panel_range {
    key_range some;
    key_range all;
};

TILEWISE_INLINE panel_range range_of(const key_range* rows, std::int64_t count) {
    panel_range range{{0, 0}, {0, INT64_MAX}};
    for (std::int64_t r = 0; r < count; ++r) {
        range.some = join(range.some, rows[r]);
        range.all = {larger(range.all.first, rows[r].first), smaller(range.all.last, rows[r].last)};
    }
    return range;
}

/// Writes `value` where a row does not see a key. The tile holds keys first_key .. first_key + keys - 1.
inline void fill_invisible(float* tile,  // [keys][width]
                           std::int64_t width, const key_range* rows, std::int64_t first_key,
                           std::int64_t keys, float value) {
    for (std::int64_t r = 0; r < width; ++r) {
        const std::int64_t begin = smaller(larger(rows[r].first - first_key, 0), keys);
        const std::int64_t end = larger(smaller(rows[r].last - first_key, keys), begin);
        for (std::int64_t j = 0; j < begin; ++j) { tile[j * width + r] = value; }
        for (std::int64_t j = end; j < keys; ++j) { tile[j * width + r] = value; }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

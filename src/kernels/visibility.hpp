// Which keys a row sees. A mask is an interval of keys per row; masks compose by intersection, and a tile
// is invisible (skipped), fully visible (no mask work) or partly visible (filled).

#ifndef TILEWISE_SRC_KERNELS_VISIBILITY_HPP
#define TILEWISE_SRC_KERNELS_VISIBILITY_HPP

#include <cstdint>

#include "interface.hpp"
#include "simd.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// Keys first .. last - 1; empty where last <= first.
struct key_range {
    std::int64_t first;
    std::int64_t last;
};

TILEWISE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}
TILEWISE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) {
    return a > b ? a : b;
}

/// The keys that a query token sees.
TILEWISE_INLINE key_range visible_keys(const shape& s, std::int64_t token) {
    key_range range{0, s.keys};
    if (s.causal) { range.last = smaller(range.last, token + s.causal_offset + 1); }
    return range.last > range.first ? range : key_range{0, 0};
}

/// The keys that any row of a panel sees, and those that all its rows see.
struct panel_range {
    key_range some;
    key_range all;
};

TILEWISE_INLINE panel_range join(const key_range* rows, std::int64_t count) {
    panel_range range{{INT64_MAX, 0}, {0, INT64_MAX}};
    for (std::int64_t r = 0; r < count; ++r) {
        if (rows[r].last > rows[r].first) {
            range.some.first = smaller(range.some.first, rows[r].first);
            range.some.last = larger(range.some.last, rows[r].last);
        }
        range.all.first = larger(range.all.first, rows[r].first);
        range.all.last = smaller(range.all.last, rows[r].last);
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

// Results that need each row's final maximum and sum, and so a second look at the scores: weights themselves,
// entropy per row, and sums of weights per key (contract step 6).

#ifndef TILEWISE_SRC_KERNELS_WEIGHTS_HPP
#define TILEWISE_SRC_KERNELS_WEIGHTS_HPP

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "chunks.hpp"
#include "interface.hpp"
#include "panel.hpp"
#include "panel_scores.hpp"
#include "simd.hpp"
#include "softmax.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// The final weights of a panel for the keys that it sees of a chunk, [keys][Vectors * lanes], in
/// memory.scores; 0 where a key is hidden. The panel's maximum and sum are final.
template <int Vectors>
void weigh_panel(const shape& s, const task& t, const panel& p, const chunk& c, const score_memory& memory) {
    const std::int64_t keys = p.seen.last - p.seen.first;
    const hiding by = score_panel<Vectors>(s, t, p, c, memory);
    vec chunk_maximum[Vectors];
    vec chunk_sum[Vectors];
    weigh_chunk<Vectors>(memory.scores, keys, static_cast<real>(s.scores.exponent), p.state,
                         {false, starts_in_pair(p.seen)}, chunk_maximum, chunk_sum);
    bool nan = false;
    for (int n = 0; n < Vectors; ++n) {
        const vec lowest = broadcast(-__builtin_inff());
        const vec sum = load(p.state.sum + n * lanes);
        const mask empty = sum == broadcast(0.0F);
        const vec last = load(p.state.maximum + n * lanes);
        const vec take = fold_factor(chunk_maximum[n] - select(last == lowest, broadcast(0.0F), last));
        for (std::int64_t j = 0; j < keys; ++j) {
            real* const place = memory.scores + (j * Vectors + n) * lanes;
            store(place, divide_row(load(place) * take, sum, empty));
        }
        nan = nan || any(is_nan(sum));
    }
    if (nan && by.some()) { fill_hidden(s, t, p, by, memory, 0.0F); }
}

TILEWISE_INLINE void weigh_panel(const shape& s, const task& t, const panel& p, const chunk& c,
                                 const score_memory& memory) {
    if (vector_multiple == 2) { return weigh_panel<2>(s, t, p, c, memory); }
    switch (p.vectors) {
        case 1:
            return weigh_panel<1>(s, t, p, c, memory);
        case 2:
            return weigh_panel<2>(s, t, p, c, memory);
        default:
            return weigh_panel<3>(s, t, p, c, memory);
    }
}

/// entropy += the sum of w log2 w over the chunk's keys.
inline void add_entropy(const panel& p, const real* weights) {
    const vec smallest = broadcast(contract::smallest_normal);
    for (int n = 0; n < p.vectors; ++n) {
        vec sum = broadcast(0.0F);
        for (std::int64_t j = 0; j < p.seen.last - p.seen.first; ++j) {
            const vec weight = load(weights + (j * p.vectors + n) * lanes);
            const vec next = fma(weight, log2_of(weight), sum);
            sum = select(weight < smallest, sum, next);
        }
        real* const total = p.entropy + n * lanes;
        store(total, load(total) + sum);
    }
}

/// The first of the chosen rows that is not before `token`.
inline std::int64_t find_chosen(const chosen_rows& chosen, std::int64_t token) {
    std::int64_t low = 0;
    std::int64_t high = chosen.count;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (chosen.tokens[middle] < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/// Calls visit(row of the panel, where its weights go) for each chosen row of the panel.
template <class Visit>
void visit_chosen_rows(const shape& s, const task& t, const panel& p, Visit visit) {
    const std::int64_t end = p.first_row + p.rows;
    for (std::int64_t n = find_chosen(s.chosen, t.first_token + p.first_row / s.group); n < s.chosen.count;
         ++n) {
        const std::int64_t row = (s.chosen.tokens[n] - t.first_token) * s.group;
        if (row >= end) { return; }
        for (std::int64_t head = 0; head < s.group; ++head) {
            if (row + head < p.first_row || row + head >= end) { continue; }
            visit(row + head - p.first_row, static_cast<real*>(t.weights.data) + n * t.weights.token_stride +
                                                head * t.weights.head_stride);
        }
    }
}

inline bool has_chosen_rows(const shape& s, const task& t, const panel& p) {
    bool some = false;
    visit_chosen_rows(s, t, p, [&](std::int64_t, real*) { some = true; });
    return some;
}

inline void store_weights(const shape& s, const task& t, const panel& p, const real* weights) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    visit_chosen_rows(s, t, p, [&](std::int64_t r, real* to) {
        for (std::int64_t j = p.seen.first; j < p.seen.last; ++j) {
            to[(j - t.first_key) * t.weights.element_stride] = weights[(j - p.seen.first) * width + r];
        }
    });
}

/// The entropy of each row, in nats.
inline void finish_entropy(panel& p) {
    for (int n = 0; n < p.vectors; ++n) {
        real* const place = p.entropy + n * lanes;
        store(place, canonical(load(place) * broadcast(-contract::ln_2) + broadcast(0.0F)));
    }
}

/// Entropy, and the weights of the chosen rows, of all rows of a task whose maximum and sum are final.
inline void look_again(const shape& s, const task& t, const workspace& w) {
    const bool entropy = t.entropy.data != nullptr;
    for (std::int64_t i = 0; i < w.panel_count; ++i) {
        panel& p = w.panels[i];
        visit_chosen_rows(s, t, p, [&](std::int64_t, real* to) {
            for (std::int64_t j = 0; j < s.chosen.columns; ++j) { to[j * t.weights.element_stride] = 0.0F; }
        });
        for (std::int64_t r = 0; r < static_cast<std::int64_t>(p.vectors) * lanes; ++r) {
            p.entropy[r] = 0.0F;
        }
        if (!entropy && !has_chosen_rows(s, t, p)) { p.range = {{0, 0}, {0, 0}, {0, 0}}; }
    }
    visit_chunks(s, t, w, [&](const panel& p, const chunk& c) {
        weigh_panel(s, t, p, c, w.scores);
        if (entropy) { add_entropy(p, w.scores.scores); }
        store_weights(s, t, p, w.scores.scores);
    });
    for (std::int64_t i = 0; i < w.panel_count && entropy; ++i) { finish_entropy(w.panels[i]); }
}

/// Sums of the weights of one chunk's keys over query tokens, for each head of the group: in blocks of as
/// many tokens as a chunk has keys, so that rounding errors do not grow with the number of queries.
class key_sums {
public:
    key_sums(arena& memory, std::int64_t group)
        : group_(group),
          block_(memory.take<real>(group * contract::chunk_keys)),
          total_(memory.take<real>(group * contract::chunk_keys)) {}

    void clear() {
        for (std::int64_t i = 0; i < group_ * contract::chunk_keys; ++i) { block_[i] = total_[i] = 0.0F; }
        block_end_ = contract::chunk_keys;
    }

    /// Rows come in ascending order; `first` is the number of the panel's first key in the chunk.
    void add(const panel& p, std::int64_t first, const real* weights) {
        const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
        row_position at(p.first_row, group_);
        for (std::int64_t r = 0; r < p.rows; ++r, at.advance()) {
            if (at.token() >= block_end_) { fold(at.token()); }
            real* const sums = block_ + at.head() * contract::chunk_keys + first;
            for (std::int64_t j = 0; j < p.seen.last - p.seen.first; ++j) {
                sums[j] = sums[j] + weights[j * width + r];
            }
        }
    }

    void write(const group_out& to, std::int64_t keys) {
        fold(0);
        for (std::int64_t i = 0; i < group_ * contract::chunk_keys; i += lanes) {
            kernels::TILEWISE_ISA::store(total_ + i, canonical(load(total_ + i)));
        }
        for (std::int64_t head = 0; head < group_; ++head) {
            for (std::int64_t j = 0; j < keys; ++j) {
                static_cast<real*>(to.data)[head * to.head_stride + j * to.token_stride] =
                    total_[head * contract::chunk_keys + j];
            }
        }
    }

private:
    void fold(std::int64_t token) {
        for (std::int64_t i = 0; i < group_ * contract::chunk_keys; ++i) {
            total_[i] = total_[i] + block_[i];
            block_[i] = 0.0F;
        }
        block_end_ = block_start(token, contract::chunk_keys) + contract::chunk_keys;
    }

    std::int64_t group_;
    real* block_;
    real* total_;
    std::int64_t block_end_ = contract::chunk_keys;
};

/// The scratch of a key task: one panel at a time.
struct key_workspace {
    score_memory scores;
    narrow_memory narrow;
    tile_source k;
    key_sums sums;
};

inline key_workspace lay_out_keys(arena& memory, const shape& s) {
    const workspace w = lay_out_shared(memory, s, 0);
    return {w.scores, w.narrow, w.k, key_sums(memory, s.group)};
}

inline std::size_t key_scratch_bytes(const shape& s) {
    if (!s.sum_keys) { return 0; }
    arena memory(nullptr);
    lay_out_keys(memory, s);
    return memory.used() + panel_bytes(s, panel_vectors);
}

/// A panel of a key task: its queries, what they see of the chunk, and their final maximum and sum.
inline panel load_panel(arena memory, const narrow_memory& narrow, const shape& s, const task& t,
                        std::int64_t first, std::int64_t start) {
    panel p = lay_out_panel(memory, narrow, s, first, smaller(panel_width, t.rows - first));
    find_visible_keys(s, t, p);
    p.seen = keys_in_chunk(p, start);
    if (is_empty(p.seen)) { return p; }
    p.masks = look_at_masks(s, t, p, start);
    if (p.masks == tile_visibility::none) {
        p.seen = {0, 0};
        return p;
    }
    load_queries(s, t.q, p);
    row_position at(first, s.group);
    for (std::int64_t r = 0; r < static_cast<std::int64_t>(p.vectors) * lanes; ++r) {
        p.state.maximum[r] = at.row_of(t.state)[0];
        p.state.sum[r] = at.row_of(t.state)[t.state.element_stride];
        if (r + 1 < p.rows) { at.advance(); }
    }
    return p;
}

inline void sum_key_weights(const shape& s, const key_task& keys, std::byte* scratch) {
    arena memory(scratch);
    key_workspace w = lay_out_keys(memory, s);
    const task& t = keys.rows;
    point_to(t, t.k, t.k_scales, w.k);
    w.sums.clear();
    const std::int64_t start = block_start(keys.first_key, contract::chunk_keys);
    const std::int64_t last = smaller(start + contract::chunk_keys, t.first_key + t.keys);
    const std::int64_t count = larger(last - keys.first_key, 0);
    chunk c{};
    c.keys = {keys.first_key, keys.first_key + count};
    if (count > 0) { c.k = load_tile(w.k, keys.first_key, count); }
    c.k_rows = rows_for_panels(w.k, c.k, c.keys);
    for (std::int64_t first = 0; first < t.rows; first += panel_width) {
        const panel p = load_panel(memory, w.narrow, s, t, first, start);
        if (is_empty(p.seen)) { continue; }
        weigh_panel(s, t, p, c, w.scores);
        w.sums.add(p, p.seen.first - keys.first_key, w.scores.scores);
    }
    w.sums.write(keys.sums, keys.columns);
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

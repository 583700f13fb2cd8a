// A panel: up to max_row_vectors * lanes query rows side by side in SIMD lanes, their running state, and
// the two transpositions, of Q on the way in and of O on the way out.

#ifndef TILEWISE_SRC_KERNELS_PANEL_HPP
#define TILEWISE_SRC_KERNELS_PANEL_HPP

#include <cstdint>

#include "../contract.hpp"
#include "elements.hpp"
#include "interface.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "tiles.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// What the keys of a tile are to the rows of a panel.
enum class tile_visibility : unsigned char { none, some, all };

/// Chunks whose tensor masks are looked at in one go: rows of a mask of bytes often lie on pages of their
/// own, and looking a page up takes longer than reading all that it has of a row. So many keys fill a page.
inline constexpr int chunks_ahead = 32;

/// What narrow panels use while they attend a chunk, one after the other.
struct narrow_memory {
    real* scores;    ///< and weights, [lanes][chunk_keys]
    real* gathered;  ///< a few rows of K or of V
    real* sums;      ///< like the panel's out
};

struct panel {
    std::int64_t first_row;  ///< of the task's batch entry and key head
    std::int64_t rows;       ///< that exist; the lanes beyond repeat the last one's visibility
    int vectors;             ///< 1 .. max_row_vectors
    bool narrow;             ///< of narrow_rows or less: see narrow.hpp
    narrow_memory narrow_room;
    real* q;    ///< [units of head_dim][query_width()]
    real* out;  ///< [value_dim, padded][vectors * lanes]; narrow: [rows][value_dim, padded]
    row_state state;
    real* entropy;      ///< the sum of w log2 w so far; [vectors * lanes]
    row_keys* visible;  ///< [vectors * lanes]
    panel_range range;
    key_range seen;                       ///< of the current chunk
    tile_visibility ahead[chunks_ahead];  ///< what the tensor masks say of the chunks from ahead_start on
    std::int64_t ahead_start;             ///< -1: nothing yet
    tile_visibility masks;                ///< what the tensor masks say of it
};

/// The rows of Q side by side: those of narrow panels are few, and stay in the first-level cache that way.
TILEWISE_INLINE constexpr std::int64_t narrow_query_width(std::int64_t rows) { return round_up(rows, 4); }
TILEWISE_INLINE std::int64_t query_width(const panel& p) {
    return p.narrow ? narrow_query_width(p.rows) : static_cast<std::int64_t>(p.vectors) * lanes;
}

/// Where a row of the task is: query token, and head of the group. Counted on, since dividing is slow.
class row_position {
public:
    row_position(std::int64_t row, std::int64_t group)
        : token_(row / group), head_(row % group), group_(group) {}
    void advance() {
        if (++head_ == group_) {
            head_ = 0;
            ++token_;
        }
    }
    [[nodiscard]] std::int64_t token() const { return token_; }
    [[nodiscard]] std::int64_t head() const { return head_; }
    /// Where the row begins, in elements.
    template <class Group>
    [[nodiscard]] std::int64_t offset_in(const Group& rows) const {
        return token_ * rows.token_stride + head_ * rows.head_stride;
    }
    /// For f32.
    [[nodiscard]] real* row_of(const group_out& rows) const {
        return static_cast<real*>(rows.data) + offset_in(rows);
    }

private:
    std::int64_t token_;
    std::int64_t head_;
    std::int64_t group_;
};

/// Whether four rows are f32, evenly spaced, their elements side by side: then they are transposed in place.
template <class Byte>
TILEWISE_INLINE bool four_even_rows(Byte* const* rows, std::int64_t count, std::int64_t element_stride,
                                    element_type type) {
    return type == real_type && element_stride == 1 && count == 4 && rows[2] - rows[1] == rows[1] - rows[0] &&
           rows[3] - rows[2] == rows[1] - rows[0];
}

/// Other rows are converted so many elements at a time.
inline constexpr std::int64_t piece = 64;

/// The units from number `first` on of four rows of head_dim elements, of which `count` exist, to lanes.
inline void convert_queries(const std::byte* const* rows, std::int64_t count, const storage& type,
                            std::int64_t element_stride, std::int64_t head_dim, std::int64_t first, real* to,
                            std::int64_t width) {
    alignas(64) real some[4][piece] = {};
    for (const std::int64_t last = unit_count(head_dim); first < last; first += piece) {
        const std::int64_t columns = smaller(last - first, piece);
        for (std::int64_t n = 0; n < count; ++n) {
            load_units(rows[n], type, element_stride, head_dim, first, columns, some[n]);
        }
        std::int64_t i = 0;
        for (; i + 4 <= columns; i += 4) {
            transpose_4x4(some[0] + i, piece, to + (first + i) * width, width);
        }
        for (; i < columns; ++i) {
            for (std::int64_t n = 0; n < 4; ++n) { to[(first + i) * width + n] = some[n][i]; }
        }
    }
}

/// Query rows to lanes; lanes without a row are 0.
inline void load_queries(const shape& s, const group_in& q, panel& p) {
    const std::int64_t width = query_width(p);
    const storage& type = storage_of(s.q_type);
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < width; r += 4) {
        const std::byte* rows[4];
        const std::int64_t count = larger(smaller(p.rows - r, 4), 0);
        for (std::int64_t n = 0; n < count; ++n, at.advance()) {
            rows[n] = element_at(q.data, at.offset_in(q), type);
        }
        std::int64_t done = 0;
        if (four_even_rows(rows, count, q.element_stride, s.q_type)) {
            const auto* const row = reinterpret_cast<const real*>(rows[0]);
            const std::int64_t stride = reinterpret_cast<const real*>(rows[1]) - row;
            for (; done + 4 <= s.head_dim; done += 4) {
                transpose_4x4(row + done, stride, p.q + done * width + r, width);
            }
        }
        if (done < s.head_dim) {
            convert_queries(rows, count, type, q.element_stride, s.head_dim, done, p.q + r, width);
        }
    }
}

/// The state before the first chunk: that of a sink, or of nothing.
inline void start_sums(const shape& s, const task& t, panel& p) {
    const real lowest = -__builtin_inff();
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < static_cast<std::int64_t>(p.vectors) * lanes; ++r) {
        p.state.chunk[r] = s.sinks != nullptr && r < p.rows ? s.sinks[t.first_head + at.head()] : lowest;
        if (r + 1 < p.rows) { at.advance(); }
    }
    const vec c = broadcast(contract::log2_e);
    for (std::int64_t r = 0; r < static_cast<std::int64_t>(p.vectors) * lanes; ++r) {
        p.state.largest[r] = lowest;
    }
    for (int n = 0; n < p.vectors; ++n) {
        vec weight[1] = {load(p.state.chunk + n * lanes)};
        const vec m = ceiling(weight[0] * c);
        const vec base[1] = {select(m == broadcast(lowest), broadcast(0.0F), m)};
        weigh_carefully<1>(weight, c, base);
        store(p.state.maximum + n * lanes, m);
        store(p.state.sum + n * lanes, weight[0]);
    }
}

/// What each row sees.
inline void find_visible_keys(const shape& s, const task& t, panel& p) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < width; ++r) {
        p.visible[r] = visible_keys(s, t, at.token(), at.head());
        if (r + 1 < p.rows) { at.advance(); }
    }
    p.range = range_of(p.visible, width);
    p.ahead_start = -1;
}

inline void clear_output(const shape& s, const panel& p) {
    const std::int64_t rows = p.narrow ? p.rows : static_cast<std::int64_t>(p.vectors) * lanes;
    const std::int64_t count = round_up(s.value_dim, max_depth) * rows;
    for (std::int64_t i = 0; i < count; ++i) { p.out[i] = 0.0F; }
}

/// The state before the first chunk.
inline void start_rows(const shape& s, const task& t, panel& p) {
    start_sums(s, t, p);
    clear_output(s, p);
}

/// A result as it is written: value / sum, 0 where the row is empty, one kind of NaN, and no -0.
TILEWISE_INLINE vec canonical(vec value) {
    const vec nan = float_of_bits(int_vec(contract::canonical_nan_bits));
    return select(value == value, value, nan);
}
TILEWISE_INLINE vec divide_row(vec value, vec sum, mask empty) {
    const vec zero = broadcast(0.0F);
    return select(empty, zero, canonical(divide(value, sum) + zero));
}

inline void divide_narrow_rows(const shape& s, panel& p) {
    const std::int64_t columns = round_up(s.value_dim, max_depth);
    for (std::int64_t r = 0; r < p.rows; ++r) {
        const vec sum = broadcast(p.state.sum[r]);
        const mask empty = sum == broadcast(0.0F);
        for (std::int64_t x = 0; x < columns; x += lanes) {
            real* const place = p.out + r * columns + x;
            store(place, divide_row(load(place), sum, empty));
        }
    }
}

/// Contract step 5 on the panel's own copy of the output. Leaves lse in state.keep, and the largest score in
/// state.take.
inline void divide_rows(const shape& s, panel& p) {
    const vec lowest = broadcast(-__builtin_inff());
    const real natural = s.scores.multiply ? 1.0F : static_cast<real>(s.scores.scale);
    for (int n = 0; n < p.vectors; ++n) {
        const vec sum = load(p.state.sum + n * lanes);
        const mask empty = sum == broadcast(0.0F);
        for (std::int64_t x = 0; x < s.value_dim && !p.narrow; ++x) {
            real* const place = p.out + (x * p.vectors + n) * lanes;
            store(place, divide_row(load(place), sum, empty));
        }
        const vec log = (load(p.state.maximum + n * lanes) + log2_of(sum)) * broadcast(contract::ln_2);
        store(p.state.keep + n * lanes, select(empty, lowest, canonical(select(sum == sum, log, sum))));
        const vec largest = load(p.state.largest + n * lanes) * broadcast(natural) + broadcast(0.0F);
        store(p.state.take + n * lanes, canonical(select(sum == sum, largest, sum)));
    }
    if (p.narrow) { divide_narrow_rows(s, p); }
}

/// The results of one value per row, where they are wanted.
inline void store_row_results(const task& t, const panel& p, std::int64_t r, const row_position& at) {
    if (t.lse.data != nullptr) { *at.row_of(t.lse) = p.state.keep[r]; }
    if (t.row_maximum.data != nullptr) { *at.row_of(t.row_maximum) = p.state.take[r]; }
    if (t.entropy.data != nullptr) { *at.row_of(t.entropy) = p.entropy[r]; }
    if (t.state.data != nullptr) {
        real* const state = at.row_of(t.state);
        state[0] = p.state.maximum[r];
        state[t.state.element_stride] = p.state.sum[r];
    }
}

/// Lanes to elements first .. last - 1 of `count` rows. Reads lanes up to a multiple of four columns.
inline void convert_results(const real* from, std::int64_t width, std::byte* const* rows, std::int64_t count,
                            const storage& type, std::int64_t element_stride, std::int64_t first,
                            std::int64_t last) {
    alignas(64) real some[4][piece];
    for (; first < last; first += piece) {
        const std::int64_t columns = smaller(last - first, piece);
        for (std::int64_t i = 0; i < columns; i += 4) {
            transpose_4x4(from + (first + i) * width, width, some[0] + i, piece);
        }
        for (std::int64_t n = 0; n < count; ++n) {
            type.encode(some[n], columns, element_at(rows[n], first * element_stride, type), element_stride);
        }
    }
}

/// Output rows as they are.
inline void copy_rows(const shape& s, const task& t, const panel& p) {
    const storage& type = storage_of(s.out_type);
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; ++r, at.advance()) {
        store_row_results(t, p, r, at);
        type.encode(p.out + r * round_up(s.value_dim, max_depth), s.value_dim,
                    element_at(t.out.data, at.offset_in(t.out), type), t.out.element_stride);
    }
}

/// Lanes to output rows.
inline void store_rows(const shape& s, const task& t, const panel& p) {
    if (p.narrow) { return copy_rows(s, t, p); }
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    const storage& type = storage_of(s.out_type);
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; r += 4) {
        std::byte* rows[4];
        const std::int64_t count = smaller(p.rows - r, 4);
        for (std::int64_t n = 0; n < count; ++n, at.advance()) {
            rows[n] = element_at(t.out.data, at.offset_in(t.out), type);
            store_row_results(t, p, r + n, at);
        }
        std::int64_t done = 0;
        if (four_even_rows(rows, count, t.out.element_stride, s.out_type)) {
            auto* const row = reinterpret_cast<real*>(rows[0]);
            const std::int64_t stride = reinterpret_cast<real*>(rows[1]) - row;
            for (; done + 4 <= s.value_dim; done += 4) {
                transpose_4x4(p.out + done * width + r, width, row + done, stride);
            }
        }
        if (done < s.value_dim) {
            convert_results(p.out + r, width, rows, count, type, t.out.element_stride, done, s.value_dim);
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

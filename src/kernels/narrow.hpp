// The micro-kernels for a panel of a few query rows, as in decoding: keys lie in lanes for the scores, and
// columns of V for the outputs, so that no lane is empty and K and V are read once, as they are stored, at
// the speed of memory.
//
// Each score, weight and output is the same chain of operations as in scores.hpp, softmax.hpp and values.hpp:
// the same bits.

#ifndef TILEWISE_SRC_KERNELS_NARROW_HPP
#define TILEWISE_SRC_KERNELS_NARROW_HPP

#include <cstddef>
#include <cstdint>

#include "../contract.hpp"
#include "columns.hpp"
#include "elements.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "stored_rows.hpp"
#include "tiles.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

// Scores.

/// Scores of `lanes` keys for `Rows` rows.
template <class Elements, int Rows>
TILEWISE_OUTLINE void score_key_group(const float* q,  // [head_dim][lanes], the first row here
                                      const key_rows& keys, std::int64_t head_dim, vec scale,
                                      const float* channel_scales, std::int64_t channel_stride,
                                      line_walk ahead,
                                      float* scores)  // [Rows][chunk_keys]
{
    vec sum[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) { sum[r] = broadcast(0.0F); }
    const auto add = [&](std::int64_t i, vec column) TILEWISE_INLINE_LAMBDA {
        if constexpr (is_scaled<Elements>) {
            column = column * scale * broadcast(channel_scales[i * channel_stride]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) { sum[r] = fma(column, broadcast(q[i * lanes + r]), sum[r]); }
    };
    constexpr std::int64_t depth = key_columns<Elements>::depth;
    std::int64_t i = 0;
    for (; i + depth <= head_dim; i += depth) {
        ahead.step();
        key_columns<Elements>::visit(keys, i, add);
    }
    if constexpr (!in_blocks_of_values<Elements>) {
        for (; i < head_dim; ++i) { add(i, key_column<Elements>(keys, i)); }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) { store(scores + r * contract::chunk_keys, sum[r]); }
}

/// The same for `rows` rows: some more, if that saves transposing the keys again.
template <class Elements>
void score_rows(const float* q, const key_rows& keys, std::int64_t head_dim, vec scale,
                const float* channel_scales, std::int64_t channel_stride, const line_walk& ahead,
                std::int64_t rows, float* scores) {
    const auto score = [&]<int Rows>() {
        score_key_group<Elements, Rows>(q, keys, head_dim, scale, channel_scales, channel_stride, ahead,
                                        scores);
    };
    if (rows == 1) { return score.template operator()<1>(); }
    if (rows == 2) { return score.template operator()<2>(); }
    if constexpr (narrow_rows > 2) {
        if (rows <= 4) { return score.template operator()<4>(); }
        if (rows <= 6) { return score.template operator()<6>(); }
    }
    if constexpr (narrow_rows > 6) {
        if (rows <= 8) { return score.template operator()<8>(); }
        return score.template operator()<narrow_rows>();
    }
}

struct value_sums;

/// What depends on how elements are stored.
struct narrow_functions {
    std::int64_t column_depth;
    void (*score_rows)(const float* q, const key_rows& keys, std::int64_t head_dim, vec scale,
                       const float* channel_scales, std::int64_t channel_stride, const line_walk& ahead,
                       std::int64_t rows, float* scores);
    void (*sum_values)(const value_sums& s);  ///< of one or two rows; null: converted first
};
inline const narrow_functions& functions_of(const storage& type);

/// Scores of all keys, [rows][chunk_keys]; what follows the last key repeats its score.
inline void narrow_scores(const float* q,  // [head_dim][lanes]
                          const stored_rows& keys, std::int64_t rows, float* scores) {
    static constexpr float no_scale = 1.0F;
    const tile_source& source = *keys.source;
    const bool by_channel = source.scales != nullptr && source.layout.scale_element_stride != 0;
    const float* const channel_scales = by_channel ? source.scales : &no_scale;
    const std::int64_t channel_stride = by_channel ? source.layout.scale_element_stride : 0;
    const narrow_functions& functions = functions_of(*keys.type);
    for (std::int64_t j = 0; j < keys.count; j += lanes) {
        const line_walk ahead(rows_ahead(keys, j), lanes, keys.row_bytes, keys.used_bytes,
                              source.dim / functions.column_depth);
        functions.score_rows(q, key_group(keys, j), source.dim, key_scales(keys, j), channel_scales,
                             channel_stride, ahead, rows, scores + j);
    }
}

/// From [rows][chunk_keys] to the form that all panels have, [keys][lanes].
inline void narrow_to_lanes(const float* rows, std::int64_t keys, float* tile) {
    for (std::int64_t j = 0; j < keys; j += 4) {
        vec quads[4];
        for (int n = 0; n < 4; ++n) {
            quads[n] = load_quads(rows + n * contract::chunk_keys + j, 4 * contract::chunk_keys);
        }
        transpose_quads(quads);
        for (int n = 0; n < 4; ++n) { store(tile + (j + n) * lanes, quads[n]); }
    }
}
/// And back.
inline void lanes_to_narrow(const float* tile, std::int64_t keys, std::int64_t rows, float* to) {
    for (std::int64_t j = 0; j < keys; ++j) {
        for (std::int64_t r = 0; r < rows; ++r) { to[r * contract::chunk_keys + j] = tile[j * lanes + r]; }
    }
}

// Weights.

/// The largest score of each row, and -inf in the lanes without a row.
inline void narrow_maxima(const float* scores, std::int64_t keys, std::int64_t rows, float* row_maximum) {
    const vec lowest = broadcast(-__builtin_inff());
    store(row_maximum, lowest);
    for (std::int64_t r = 0; r < rows; ++r) {
        vec largest = lowest;  // of whole vectors: what follows the last key repeats it
        for (std::int64_t j = 0; j < keys; j += lanes) {
            largest = maximum(load(scores + r * contract::chunk_keys + j), largest);
        }
        row_maximum[r] = largest_lane(largest);
    }
}

/// Scores to weights, in place, where no row needs care; `base` is m_c of each row.
inline void narrow_weights(float* scores, std::int64_t keys, std::int64_t rows, float exponent,
                           const float* chunk_maximum) {
    const vec c = broadcast(exponent);
    for (std::int64_t r = 0; r < rows; ++r) {
        const vec base = scale_base(broadcast(chunk_maximum[r]));
        float* const row = scores + r * contract::chunk_keys;
        for (std::int64_t j = 0; j < keys; j += 2 * lanes) {  // beyond the last key, nobody reads
            vec weight[2] = {load(row + j), load(row + j + lanes)};
            const vec bases[2] = {base, base};
            weigh<2>(weight, c, bases);
            store(row + j, weight[0]);
            store(row + j + lanes, weight[1]);
        }
    }
}

/// l_c of each row.
inline void sum_narrow_weights(const float* weights, std::int64_t keys, std::int64_t rows, float* sums) {
    for (std::int64_t first = 0; first < rows; first += 4) {
        const float* const row = weights + first * contract::chunk_keys;
        float sum[4] = {};
        for (std::int64_t j = 0; j < keys; ++j) {  // rows that do not exist are not used
#pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) { sum[n] += row[n * contract::chunk_keys + j]; }
        }
        for (int n = 0; n < 4; ++n) { sums[first + n] = sum[n]; }
    }
}

// Values.

/// Weighted sums of the rows of V of one chunk.
struct value_sums {
    const float* weights;  ///< [rows][chunk_keys]
    const stored_rows& v;
    std::int64_t rows;
    std::int64_t columns;  ///< a multiple of max_depth
    float* sums;           ///< [rows][columns]
};

/// Rows of V that are evenly spaced.
struct value_run {
    const std::byte* data;
    const std::byte* ahead;  ///< prefetched meanwhile; null: nothing
    std::int64_t first;
    std::int64_t last;
};

/// The rows from `row` on, up to the end of their page or `most` of them.
inline value_run run_of_rows(const stored_rows& rows, std::int64_t row, std::int64_t most) {
    const tile_source& source = *rows.source;
    const std::int64_t token = rows.first + row;
    std::int64_t count = smaller(rows.count - row, most);
    if (source.pages != nullptr) { count = smaller(count, source.page_keys - token % source.page_keys); }
    return {place_of(source, *rows.type, token).row, rows_ahead(rows, row), row, row + count};
}

/// Prefetches the part of a row that is as long as a part of the current one.
TILEWISE_INLINE void prefetch_part(const std::byte* row, std::int64_t bytes) {
    for (std::int64_t n = 0; n < bytes; n += 64) { __builtin_prefetch(row + n, 0, 2); }
}

/// One or two rows, and `Columns` vectors of columns from `x` on: V is converted in registers.
template <class Elements, int Rows, int Columns>
TILEWISE_OUTLINE void sum_stored_columns(const value_sums& s, std::int64_t x) {
    vec sum[Rows][Columns];
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) { sum[r][n] = broadcast(0.0F); }
    }
    const std::int64_t row_bytes = s.v.row_bytes;
    const std::int64_t offset = bytes_before<Elements>(x);
    for (std::int64_t j = 0; j < s.v.count;) {
        value_run run = run_of_rows(s.v, j, contract::chunk_keys);
        const std::byte* row = run.data;
        const std::byte* ahead = run.ahead == nullptr ? run.data : run.ahead;
        for (; j < run.last; ++j, row += row_bytes, ahead += row_bytes) {
            prefetch_part(ahead + offset, bytes_before<Elements>(Columns * lanes));
            vec weight[Rows];
#pragma GCC unroll 2
            for (int r = 0; r < Rows; ++r) { weight[r] = broadcast(s.weights[r * contract::chunk_keys + j]); }
#pragma GCC unroll 8
            for (int n = 0; n < Columns; ++n) {
                const vec value = elements_at<Elements>(row, x + n * lanes);
#pragma GCC unroll 2
                for (int r = 0; r < Rows; ++r) { sum[r][n] = fma(value, weight[r], sum[r][n]); }
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) { store(s.sums + r * s.columns + x + n * lanes, sum[r][n]); }
    }
}

template <class Elements, int Rows,
          int Columns = narrow_value_accumulators / Rows<8 ? 4 : 8> TILEWISE_INLINE void sum_stored_rows(
                                                        const value_sums& s, std::int64_t x) {
    for (; x + Columns * lanes <= s.columns; x += Columns * lanes) {
        sum_stored_columns<Elements, Rows, Columns>(s, x);
    }
    if constexpr (Columns > 1) { sum_stored_rows<Elements, Rows, Columns / 2>(s, x); }
}

template <class Elements>
void sum_values_of_few_rows(const value_sums& s) {
    if (s.rows == 1) {
        sum_stored_rows<Elements, 1>(s, 0);
    } else {
        sum_stored_rows<Elements, 2>(s, 0);
    }
}

template <class Elements>
constexpr narrow_functions narrow_functions_for() {
    return {key_columns<Elements>::depth, score_rows<Elements>,
            is_scaled<Elements> ? nullptr : sum_values_of_few_rows<Elements>};
}
constexpr narrow_functions narrow_table[] = {
    narrow_functions_for<f32_elements>(),  narrow_functions_for<f16_elements>(),
    narrow_functions_for<bf16_elements>(), narrow_functions_for<q8_0_elements>(),
    narrow_functions_for<q4_0_elements>(), narrow_functions_for<i8_elements>(),
    narrow_functions_for<e4m3_elements>(), narrow_functions_for<e5m2_elements>()};

inline const narrow_functions& functions_of(const storage& type) { return narrow_table[place_in(type)]; }

/// A few rows of V as f32, and what is prefetched while they are used.
struct value_piece {
    const float* data;
    std::int64_t stride;
    const std::byte* ahead;
    std::int64_t ahead_stride;
    std::int64_t ahead_bytes;  ///< for each max_depth columns
};

/// Rows `row` .. and vectors of columns from `x` on: `count` keys more, from key `first` on.
template <int Rows, int Columns>
TILEWISE_OUTLINE void add_row_columns(const value_sums& s, const value_piece& v, std::int64_t first,
                                      std::int64_t count, std::int64_t row, std::int64_t x) {
    vec sum[Rows][Columns];
    float* const sums = s.sums + row * s.columns + x;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) { sum[r][n] = load(sums + r * s.columns + n * lanes); }
    }
    const float* const weights = s.weights + row * contract::chunk_keys + first;
    const std::byte* const ahead = v.ahead + x / max_depth * v.ahead_bytes;
    const std::int64_t ahead_bytes =
        row == 0 ? (Columns * lanes + max_depth - 1) / max_depth * v.ahead_bytes : 0;
    for (std::int64_t j = 0; j < count; ++j) {
        prefetch_part(ahead + j * v.ahead_stride, ahead_bytes);
        vec weight[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) { weight[r] = broadcast(weights[r * contract::chunk_keys + j]); }
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) {
            const vec value = load_unaligned(v.data + j * v.stride + x + n * lanes);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) { sum[r][n] = fma(value, weight[r], sum[r][n]); }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) { store(sums + r * s.columns + n * lanes, sum[r][n]); }
    }
}

/// As many rows from `row` on as there are, up to `Rows`. Returns how many.
template <int Rows, int Columns>
TILEWISE_INLINE std::int64_t add_some_rows(const value_sums& s, const value_piece& v, std::int64_t first,
                                           std::int64_t count, std::int64_t row, std::int64_t x) {
    if constexpr (Rows > 1) {
        if (s.rows - row < Rows) { return add_some_rows<Rows - 1, Columns>(s, v, first, count, row, x); }
    }
    add_row_columns<Rows, Columns>(s, v, first, count, row, x);
    return Rows;
}

/// The most rows whose sums of so many vectors of columns are in registers, beside a vector of V for each and
/// a weight for each row.
inline constexpr int rows_with(int columns) {
    return columns == 8   ? narrow_value_accumulators / 8
           : columns == 1 ? 4
                          : narrow_value_accumulators / (columns + 1);
}

/// As many vectors of columns from `x` on as there are, up to `Columns`, and no more than leave room for all
/// rows at once, if that can be: each line of V is read once then. Returns the columns done.
template <int Columns>
TILEWISE_INLINE std::int64_t add_some_columns(const value_sums& s, const value_piece& v, std::int64_t first,
                                              std::int64_t count, std::int64_t x) {
    if constexpr (Columns > 1) {
        if (s.columns - x < Columns * lanes || (Columns > 2 && s.rows > rows_with(Columns))) {
            return add_some_columns<Columns / 2>(s, v, first, count, x);
        }
    }
    for (std::int64_t row = 0; row < s.rows;) {
        row += add_some_rows<rows_with(Columns), Columns>(s, v, first, count, row, x);
    }
    return Columns * lanes;
}

/// The rows of a run as f32: where they are, if they are f32 with whole vectors of columns, else converted.
inline value_piece piece_of(const value_sums& s, const value_run& run) {
    const stored_rows& v = s.v;
    const tile_source& source = *v.source;
    value_piece some{reinterpret_cast<const float*>(run.data), source.layout.token_stride,
                     run.ahead == nullptr ? run.data : run.ahead, v.row_bytes,
                     (v.used_bytes * max_depth + source.dim - 1) / source.dim};
    if (source.layout.type == element_type::f32 && source.scales == nullptr && source.dim == s.columns) {
        return some;
    }
    some.stride = tile_stride(source.dim);
    some.data = reinterpret_cast<float*>(v.gathered);
    for (std::int64_t j = run.first; j < run.last; ++j) {
        load_row(source, *v.type, place_of(source, *v.type, v.first + j),
                 reinterpret_cast<float*>(v.gathered) + (j - run.first) * some.stride);
    }
    return some;
}

/// The chunk's sums, from zero: a few rows of V at a time, which stay in the first-level cache meanwhile.
inline void narrow_values(const value_sums& s) {
    const auto sum_stored = functions_of(*s.v.type).sum_values;
    if (s.rows <= 2 && sum_stored != nullptr && s.v.source->dim == s.columns) { return sum_stored(s); }
    for (std::int64_t i = 0; i < s.rows * s.columns; ++i) { s.sums[i] = 0.0F; }
    for (std::int64_t j = 0; j < s.v.count;) {
        const value_run run = run_of_rows(s.v, j, lanes);
        const value_piece some = piece_of(s, run);
        for (std::int64_t x = 0; x < s.columns;) {
            x += add_some_columns<8>(s, some, run.first, run.last - run.first, x);
        }
        j = run.last;
    }
}

/// The same for a tile of which some keys are masked and V is not all finite, as in values.hpp.
inline void narrow_values_carefully(const value_sums& s, const tile& v) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
        for (std::int64_t x = 0; x < s.columns; x += lanes) {
            vec sum = broadcast(0.0F);
            for (std::int64_t j = 0; j < s.v.count; ++j) {
                const float weight = s.weights[r * contract::chunk_keys + j];
                if (!(weight < 0.0F)) {
                    sum = fma(load_unaligned(v.data + j * v.stride + x), broadcast(weight), sum);
                }
            }
            store(s.sums + r * s.columns + x, sum);
        }
    }
}

/// Folds the chunk's sums into the output, [rows][columns].
inline void fold_narrow_sums(const value_sums& s, const float* keep, const float* take, float* out) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
        const vec a = broadcast(keep[r]);
        const vec b = broadcast(take[r]);
        for (std::int64_t x = r * s.columns; x < (r + 1) * s.columns; x += lanes) {
            store(out + x, fma(load(out + x), a, load(s.sums + x) * b));
        }
    }
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

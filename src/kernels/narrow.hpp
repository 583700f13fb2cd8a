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
#include "panel.hpp"
#include "products.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "stored_rows.hpp"
#include "tiles.hpp"
#include "values.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

// Scores.

/// Groups of keys that are scored together, for so many rows: each sum is a chain that waits four cycles for
/// each addition, in which AVX2 begins eight, AVX-512 four. (With what is unpacked from blocks, the sums of
/// more than four rows do not stay in registers.)
inline constexpr int most_groups = 2;
template <class Elements>
constexpr int groups_together(std::int64_t rows) {
    if (is_scaled<Elements>) { return 1; }  // a group has scales of its own
    constexpr std::int64_t most_rows_with_two_multipliers = in_blocks_of_values<Elements> ? 4 : 6;
    const std::int64_t most_rows = lanes == 16 ? 1 : lanes == 8 ? most_rows_with_two_multipliers : 2;
    return rows <= most_rows ? most_groups : 1;
}
/// Many lanes are many rows of K: where those of all groups lie on more than a part of a memory page, reading
/// them in turns stops the processor's prefetchers, which costs more than waiting.
inline constexpr std::int64_t most_row_bytes_of_groups =
    lanes == 16 ? 2560 / (most_groups * lanes) : INT64_MAX;

/// Scores of `Groups` times `lanes` keys for `Rows` rows.
template <class Elements, int Rows, int Groups>
TILEWISE_OUTLINE void score_key_groups(const float* q,  // [units][narrow_query_width(Rows)]
                                       const key_rows& keys, std::int64_t units, vec scale,
                                       const float* channel_scales, std::int64_t channel_stride,
                                       line_walk ahead,
                                       float* scores)  // [Rows][chunk_keys]
{
    constexpr std::int64_t width = narrow_query_width(Rows);
    vec sum[Groups][Rows];
    key_rows group[Groups];
#pragma GCC unroll 2
    for (int g = 0; g < Groups; ++g) {
        group[g] = {keys.data + g * lanes * keys.row_bytes, keys.row_bytes};
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) { sum[g][r] = broadcast(0.0F); }
    }
    const auto add = [&](std::int64_t i, vec(&columns)[Groups]) TILEWISE_INLINE_LAMBDA {
        if constexpr (is_scaled<Elements>) {
            const vec channel_scale = broadcast(channel_scales[i * channel_stride]);
#pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g) { columns[g] = columns[g] * scale * channel_scale; }
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
            const vec query = broadcast(q[i * width + r]);
#pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g) { sum[g][r] = multiply_add(columns[g], query, sum[g][r]); }
        }
    };
    constexpr std::int64_t depth = key_columns<Elements>::depth;
    std::int64_t i = 0;
    for (; i + depth <= units; i += depth) {
        ahead.step();
        key_columns<Elements>::visit(group, i, add);
    }
    if constexpr (!in_blocks_of_values<Elements>) {
        for (; i < units; ++i) {
            vec columns[Groups];
#pragma GCC unroll 2
            for (int g = 0; g < Groups; ++g) { columns[g] = key_column<Elements>(group[g], i); }
            add(i, columns);
        }
    }
#pragma GCC unroll 2
    for (int g = 0; g < Groups; ++g) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) { store(scores + r * contract::chunk_keys + g * lanes, sum[g][r]); }
    }
}

/// The same for `rows` rows: some more, if that saves transposing the keys again. `groups` is 1, or
/// groups_together().
template <class Elements>
void score_rows(const float* q, const key_rows& keys, int groups, std::int64_t units, vec scale,
                const float* channel_scales, std::int64_t channel_stride, const line_walk& ahead,
                std::int64_t rows, float* scores) {
    const auto score_groups = [&]<int Rows, int Groups>() {
        if constexpr (waits_for_memory<Elements>(Rows)) {
            touch_rows(keys, Groups * lanes, units * std::int64_t{sizeof(float)});
        }
        score_key_groups<Elements, Rows, Groups>(q, keys, units, scale, channel_scales, channel_stride, ahead,
                                                 scores);
    };
    const auto score = [&]<int Rows>() {
        if constexpr (groups_together<Elements>(Rows) > 1) {
            if (groups > 1) { return score_groups.template operator()<Rows, most_groups>(); }
        }
        score_groups.template operator()<Rows, 1>();
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
struct value_run;

/// What depends on how elements are stored.
struct narrow_functions {
    std::int64_t column_depth;
    int (*groups_together)(std::int64_t rows);
    void (*score_rows)(const float* q, const key_rows& keys, int groups, std::int64_t units, vec scale,
                       const float* channel_scales, std::int64_t channel_stride, const line_walk& ahead,
                       std::int64_t rows, float* scores);
    void (*add_values)(const value_sums& s, const value_run& run);  ///< null: converted first
};
inline const narrow_functions& functions_of(const storage& type);

/// Scores of all keys, [rows][chunk_keys]; what follows the last key repeats its score.
inline void narrow_scores(const float* q,  // [units][narrow_query_width(rows)]
                          const stored_rows& keys, std::int64_t rows, float* scores) {
    static constexpr float no_scale = 1.0F;
    const tile_source& source = *keys.source;
    const bool by_channel = source.scales != nullptr && source.layout.scale_element_stride != 0;
    const float* const channel_scales = by_channel ? source.scales : &no_scale;
    const std::int64_t channel_stride = by_channel ? source.layout.scale_element_stride : 0;
    const narrow_functions& functions = functions_of(*keys.type);
    const std::int64_t units = units_of_row(source);
    const bool one_group = source.scales != nullptr || keys.row_bytes > most_row_bytes_of_groups;
    const int together = one_group ? 1 : functions.groups_together(rows);
    for (std::int64_t j = 0; j < keys.count;) {
        const int groups = are_even(keys, j, together * lanes) ? together : 1;
        const line_walk ahead(ahead_of(keys, j), groups * lanes, keys.row_bytes, keys.used_bytes,
                              units / functions.column_depth);
        functions.score_rows(q, key_group(keys, j), groups, units, key_scales(keys, j), channel_scales,
                             channel_stride, ahead, rows, scores + j);
        j += groups * lanes;
    }
}

/// From [rows][chunk_keys] to the form that all panels have, [keys][lanes].
inline void narrow_to_lanes(float* rows, std::int64_t keys, std::int64_t row_count, float* tile) {
    for (std::int64_t r = row_count; r < lanes; ++r) {
        for (std::int64_t j = 0; j < keys; ++j) { rows[r * contract::chunk_keys + j] = 0.0F; }
    }
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

#if defined(TILEWISE_BF16_PAIRS)
/// Weights to pairs of bf16, in place: [rows][chunk_keys floats].
inline void pack_narrow_weights(float* weights, std::int64_t keys, std::int64_t rows, bool starts_in_pair) {
    constexpr std::uint16_t nothing = 0;
    const std::int64_t first = starts_in_pair ? 1 : 0;
    for (std::int64_t r = 0; r < rows; ++r) {
        float* const row = weights + r * contract::chunk_keys;
        auto* const halves = reinterpret_cast<std::byte*>(row);
        for (std::int64_t j = 0; j < keys; j += 2 * lanes) {
            const vec packed = round_in_order(load(row + j), load(row + j + lanes));
            __builtin_memcpy(halves + 2 * (first + j), &packed, sizeof packed);
        }
        if (starts_in_pair) { __builtin_memcpy(halves, &nothing, sizeof nothing); }
        __builtin_memcpy(halves + 2 * (first + keys), &nothing, sizeof nothing);
    }
}

/// l_c of each row, of so many units.
inline void sum_narrow_weights(const float* weights, std::int64_t units, std::int64_t rows, float* sums) {
    for (std::int64_t first = 0; first < rows; first += 4) {
        const float* const row = weights + first * contract::chunk_keys;
        vec sum[4] = {broadcast(0.0F), broadcast(0.0F), broadcast(0.0F), broadcast(0.0F)};
        for (std::int64_t j = 0; j < units; ++j) {  // rows that do not exist are not used
#    pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) {
                sum[n] = add_weights(broadcast(row[n * contract::chunk_keys + j]), sum[n]);
            }
        }
        for (int n = 0; n < 4; ++n) { sums[first + n] = first_lane(sum[n]); }
    }
}
#else
inline void pack_narrow_weights(float* /*weights*/, std::int64_t /*keys*/, std::int64_t /*rows*/,
                                bool /*starts_in_pair*/) {}

/// l_c of each row.
inline void sum_narrow_weights(const float* weights, std::int64_t keys, std::int64_t rows, float* sums) {
    for (std::int64_t first = 0; first < rows; first += 4) {
        const float* const row = weights + first * contract::chunk_keys;
        float sum[4] = {};
        for (std::int64_t j = 0; j < keys; ++j) {  // rows that do not exist are not used
#    pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) { sum[n] += row[n * contract::chunk_keys + j]; }
        }
        for (int n = 0; n < smaller(rows - first, 4); ++n) { sums[first + n] = sum[n]; }
    }
}
#endif

// Values.

/// Weighted sums of the rows of V of one chunk, and the sums of the weights.
struct value_sums {
    const float* weights;  ///< units, [rows][chunk_keys]
    const stored_rows& v;
    std::int64_t rows;
    std::int64_t columns;  ///< a multiple of max_depth
    float* sums;           ///< [rows, a multiple of 4][columns]
    float* weight_sums;    ///< [lanes]
    bool starts_in_pair;   ///< the first row is the second of its pair
};
TILEWISE_INLINE std::int64_t count_units(const value_sums& s) {
    return unit_count(s.v.count + (s.starts_in_pair ? 1 : 0));
}

/// Units first .. last - 1 of a chunk, whose rows are evenly spaced.
struct value_run {
    std::int64_t first;
    std::int64_t last;
    const std::byte* data;
    std::int64_t row_bytes;
    std::uintptr_t ahead;  ///< what is prefetched meanwhile, row by row, or the same
    void (*add)(const value_sums& s, const value_run& run);
};

/// The rows from `first` on, up to the end of their page, or `most` of them.
inline value_run run_of_rows(const stored_rows& rows, std::int64_t first, std::int64_t most) {
    const tile_source& source = *rows.source;
    const std::int64_t token = rows.first + first;
    std::int64_t count = smaller(rows.count - first, most);
    if (source.pages != nullptr) { count = smaller(count, source.page_keys - token % source.page_keys); }
    const std::byte* const data = place_of(source, *rows.type, token).row;
    const std::uintptr_t ahead = ahead_of(rows, first);
    return {first,
            first + count,
            data,
            rows.row_bytes,
            ahead == 0 ? reinterpret_cast<std::uintptr_t>(data) : ahead,
            functions_of(*rows.type).add_values};
}

/// Sums of weights are found on the way, with the first columns, for so many rows: for few rows, a chain of
/// its own would take as long as all the rest.
inline constexpr int rows_with_weight_sums = 2;

/// For so few rows, enough registers hold their sums that V is read in one pass, or nearly so, and f32 is
/// left to the processor's own prefetchers (see waits_for_memory).
inline constexpr std::int64_t most_rows_in_order = lanes == 16 ? 4 : 0;
template <class Elements>
inline constexpr bool is_read_in_order(std::int64_t rows) {
    return rows <= most_rows_in_order && bytes_before<Elements>(lanes) == lanes * std::int64_t{sizeof(float)};
}

/// Values x .. of a unit of rows.
template <class Elements>
TILEWISE_INLINE vec value_units(const std::byte* rows, std::int64_t row_bytes, std::int64_t x) {
#if defined(TILEWISE_BF16_PAIRS)
    const std::byte* const first = rows + bytes_before<Elements>(x);
    return interleave_rows(first, first + row_bytes);
#else
    static_cast<void>(row_bytes);
    return elements_at<Elements>(rows, x);
#endif
}

/// Vectors of columns whose sums are in the order of decode_spread(), until the chunk's last run.
template <class Elements, int Columns>
inline constexpr int spread_columns = Columns % vectors_spread<Elements> == 0 ? vectors_spread<Elements> : 1;

template <class Elements, int Spread>
TILEWISE_INLINE void spread_units(const std::byte* rows, std::int64_t row_bytes, std::int64_t x,
                                  vec (&values)[Spread]) {
    if constexpr (Spread > 1) {
        Elements::decode_spread(rows + bytes_before<Elements>(x), values);
    } else {
        values[0] = value_units<Elements>(rows, row_bytes, x);
    }
}

template <class Elements, int Columns>
TILEWISE_INLINE void prefetch_columns(std::int64_t row) {
    for (std::int64_t n = 0; n < bytes_before<Elements>(Columns * lanes); n += line_bytes) {
        prefetch(static_cast<std::uintptr_t>(row + n));
    }
}

/// Rows `row` .. and `Columns` vectors of columns from `x` on, over the rows of a run; the first run of a
/// chunk starts from zero. V is converted in registers.
template <class Elements, int Rows, int Columns>
TILEWISE_OUTLINE void add_columns(const value_sums& s, const value_run& run, std::int64_t row,
                                  std::int64_t x) {
    const float* const weights = s.weights + row * contract::chunk_keys;
    float* const sums = s.sums + row * s.columns + x;
    const bool start = run.first == 0;
    // What is known when this is compiled is where blocks are, and which values share one.
    constexpr bool whole_blocks = !in_blocks_of_values<Elements> || Columns * lanes % block_values == 0;
    const std::int64_t whole = whole_blocks ? x : 0;
    const std::int64_t offset = bytes_before<Elements>(whole);
    constexpr int spread = spread_columns<Elements, Columns>;
    // A weight that is used once needs no register while the sums of many rows do.
    constexpr bool keeps_weights = Columns > 1 || Rows <= rows_with_weight_sums;
    vec sum[Rows][Columns / spread][spread];
    vec weight_sum[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        weight_sum[r] = broadcast(start ? 0.0F : s.weight_sums[row + r]);
#pragma GCC unroll 8
        for (int n = 0; n < Columns / spread; ++n) {
            for (int m = 0; m < spread; ++m) {
                sum[r][n][m] =
                    start ? broadcast(0.0F) : load(sums + r * s.columns + (n * spread + m) * lanes);
            }
        }
    }
    std::int64_t ahead = static_cast<std::int64_t>(run.ahead) + bytes_before<Elements>(x);
    for (std::int64_t j = run.first; j < run.last; ++j) {
        const std::byte* const data = run.data + (j - run.first) * unit_elements * run.row_bytes;
#pragma GCC unroll 2
        for (int row_of_unit = 0; row_of_unit < unit_elements; ++row_of_unit) {
            if constexpr (!is_read_in_order<Elements>(Rows)) { prefetch_columns<Elements, Columns>(ahead); }
            ahead += run.row_bytes;
        }
        vec weight[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            if constexpr (keeps_weights) { weight[r] = broadcast(weights[r * contract::chunk_keys + j]); }
            if constexpr (Rows <= rows_with_weight_sums) {
                weight_sum[r] = add_weights(weight[r], weight_sum[r]);
            }
        }
#pragma GCC unroll 8
        for (int n = 0; n < Columns / spread; ++n) {
            vec value[spread];
            spread_units<Elements>(data + offset, run.row_bytes, x - whole + n * spread * lanes, value);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                if constexpr (!keeps_weights) {
                    weight[r] = broadcast(weights[r * contract::chunk_keys + j]);
                }
#pragma GCC unroll 2
                for (int m = 0; m < spread; ++m) {
                    sum[r][n][m] = multiply_add(value[m], weight[r], sum[r][n][m]);
                }
            }
        }
    }
    const bool is_last = run.last == count_units(s);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        if (Rows <= rows_with_weight_sums && x == 0) { s.weight_sums[row + r] = first_lane(weight_sum[r]); }
#pragma GCC unroll 8
        for (int n = 0; n < Columns / spread; ++n) {
            if constexpr (spread > 1) {
                if (is_last) { Elements::gather(sum[r][n]); }
            }
            for (int m = 0; m < spread; ++m) {
                store(sums + r * s.columns + (n * spread + m) * lanes, sum[r][n][m]);
            }
        }
    }
}

/// As narrow_columns(), of whole blocks; or of one vector, for more rows.
template <class Elements>
inline constexpr int most_columns(int rows) {
    if (lanes == 8 && rows > 4) { return 1; }
    return in_blocks_of_values<Elements> && rows == 4 && lanes == 16 ? 4 : narrow_columns(rows);
}

/// All columns from `x` on.
template <class Elements, int Rows, int Columns = most_columns<Elements>(Rows)>
TILEWISE_INLINE void add_rows(const value_sums& s, const value_run& run, std::int64_t row, std::int64_t x) {
    for (; x + Columns * lanes <= s.columns; x += Columns * lanes) {
        add_columns<Elements, Rows, Columns>(s, run, row, x);
    }
    if constexpr (Columns > 1) { add_rows<Elements, Rows, Columns / 2>(s, run, row, x); }
}

/// Whether more than four rows are taken four at a time. Otherwise their sums leave registers for a vector or
/// two of columns only: what is converted is then converted once for all rows, which pays where converting
/// takes long; on AVX2, for blocks.
template <class Elements>
inline constexpr bool adds_four_rows = narrow_rows == 2 ||
                                       (lanes == 8 ? !in_blocks_of_values<Elements>
                                                   : bytes_before<Elements>(lanes) == lanes * 2);

/// A run for all rows: with some that do not exist, where that saves another reading of V.
template <class Elements>
void add_values(const value_sums& s, const value_run& run) {
    std::int64_t row = 0;
    const auto add = [&]<int Rows>() {
        add_rows<Elements, Rows>(s, run, row, 0);
        row += Rows;
    };
    while (row < s.rows) {
        const std::int64_t left = s.rows - row;
        if (left == 1) {
            add.template operator()<1>();
        } else if (left == 2 || narrow_rows == 2) {
            add.template operator()<2>();
        }
        if constexpr (narrow_rows > 2) {
            if (left == 3) { add.template operator()<3>(); }
            if (left == 4 || (left > 4 && adds_four_rows<Elements>)) { add.template operator()<4>(); }
        }
        if constexpr (!adds_four_rows<Elements>) {
            if (left == 5 || left == 6) { add.template operator()<6>(); }
            if (left > 6) { add.template operator()<8>(); }
        }
    }
}

template <class Elements>
constexpr narrow_functions narrow_functions_for() {
    if constexpr (is_scaled<Elements>) {
        return {key_columns<Elements>::depth, groups_together<Elements>, score_rows<Elements>, nullptr};
    } else {
        return {key_columns<Elements>::depth, groups_together<Elements>, score_rows<Elements>,
                add_values<Elements>};
    }
}
#if defined(TILEWISE_BF16_PAIRS)
/// Pairs lie in rows of bf16 as floats do in other rows.
constexpr narrow_functions functions_of_pairs = {key_columns<f32_elements>::depth,
                                                 groups_together<f32_elements>, score_rows<f32_elements>,
                                                 add_values<bf16_elements>};
inline const narrow_functions& functions_of(const storage& /*type*/) { return functions_of_pairs; }

/// Pairs of rows, evenly spaced, with zeros for rows that are missing and for columns beyond the last.
inline value_run gather_run(const value_sums& s, std::int64_t first, std::int64_t most) {
    const tile_source& source = *s.v.source;
    const std::int64_t row_bytes = 2 * s.columns;
    const std::int64_t last = smaller(first + most, count_units(s));
    std::byte* to = s.v.gathered;
    for (std::int64_t j = 2 * first - (s.starts_in_pair ? 1 : 0), n = 0; n < 2 * (last - first); ++n) {
        const bool is_there = j + n >= 0 && j + n < s.v.count;
        const std::byte* const row =
            is_there ? place_of(source, *s.v.type, s.v.first + j + n).row : s.v.gathered;
        copy_halves(row, source.layout.element_stride, is_there ? source.dim : 0, s.columns, to);
        to += row_bytes;
    }
    return {first,
            last,
            s.v.gathered,
            row_bytes,
            reinterpret_cast<std::uintptr_t>(s.v.gathered),
            add_values<bf16_elements>};
}

/// The units from `first` on that lie where they are stored, up to `most`; others are gathered.
inline value_run next_run(const value_sums& s, std::int64_t first, std::int64_t most) {
    const std::int64_t row = 2 * first - (s.starts_in_pair ? 1 : 0);
    const bool whole = row >= 0 && row + 1 < s.v.count;
    if (!whole || s.v.source->dim != s.columns || s.v.source->layout.element_stride != 1) {
        return gather_run(s, first, whole ? lanes / 2 : 1);
    }
    value_run run = run_of_rows(s.v, row, 2 * most);
    if (run.last - run.first < 2) { return gather_run(s, first, 1); }  // on two pages
    run.last = first + (run.last - run.first) / 2;
    run.first = first;
    return run;
}
#else
constexpr narrow_functions narrow_table[] = {
    narrow_functions_for<f32_elements>(),  narrow_functions_for<f16_elements>(),
    narrow_functions_for<bf16_elements>(), narrow_functions_for<q8_0_elements>(),
    narrow_functions_for<q4_0_elements>(), narrow_functions_for<i8_elements>(),
    narrow_functions_for<e4m3_elements>(), narrow_functions_for<e5m2_elements>()};

inline const narrow_functions& functions_of(const storage& type) { return narrow_table[place_in(type)]; }

/// The rows of a run, of no more than `lanes`, as f32.
inline value_run convert_run(const stored_rows& v, const value_run& run) {
    auto* const converted = reinterpret_cast<float*>(v.gathered);
    const std::int64_t stride = tile_stride(v.source->dim);
    for (std::int64_t j = run.first; j < run.last; ++j) {
        load_row(*v.source, *v.type, place_of(*v.source, *v.type, v.first + j),
                 converted + (j - run.first) * stride);
    }
    return {run.first,
            run.last,
            v.gathered,
            stride * static_cast<std::int64_t>(sizeof(float)),
            reinterpret_cast<std::uintptr_t>(v.gathered),
            add_values<f32_elements>};
}

/// The rows from `first` on that lie where they are stored, up to `most`; others are converted.
inline value_run next_run(const value_sums& s, std::int64_t first, std::int64_t most) {
    const bool stored = functions_of(*s.v.type).add_values != nullptr && s.v.source->dim == s.columns;
    return stored ? run_of_rows(s.v, first, most) : convert_run(s.v, run_of_rows(s.v, first, lanes));
}
#endif

/// The chunk's sums, l_c and o_c: of a few rows of V at a time, where they are read several times, for some
/// of the columns or query rows each, so that they stay in the first-level cache.
inline void narrow_values(const value_sums& s) {
    constexpr std::int64_t near_rows = 32;
    const std::int64_t units = count_units(s);
    if (s.rows > rows_with_weight_sums || s.columns == 0) {
        sum_narrow_weights(s.weights, units, s.rows, s.weight_sums);
    }
    const bool at_once =
        s.rows <= most_rows_in_order || s.columns <= narrow_columns(static_cast<int>(s.rows)) * lanes;
    const std::int64_t most = at_once ? contract::chunk_keys : near_rows / unit_elements;
    for (std::int64_t j = 0; j < units;) {
        const value_run run = next_run(s, j, most);
        run.add(s, run);
        j = run.last;
    }
}

#if defined(TILEWISE_BF16_PAIRS)
/// The sums of `lanes` columns of a tile for one row, as in values.hpp.
TILEWISE_INLINE vec sum_visible_columns(const value_sums& s, const float* weights, const float* v,
                                        std::int64_t stride) {
    vec sum = broadcast(0.0F);
    for (std::int64_t j = s.starts_in_pair ? -1 : 0; j < s.v.count; j += 2, v += stride) {
        const float first = j < 0 ? masked_weight : weights[j];
        const float second = j + 1 == s.v.count ? masked_weight : weights[j + 1];
        sum = add_visible(load_unaligned(v), broadcast(first), broadcast(second), sum);
    }
    return sum;
}
#else
TILEWISE_INLINE vec sum_visible_columns(const value_sums& s, const float* weights, const float* v,
                                        std::int64_t stride) {
    vec sum = broadcast(0.0F);
    for (std::int64_t j = 0; j < s.v.count; ++j) {
        if (!(weights[j] < 0.0F)) { sum = fma(load_unaligned(v + j * stride), broadcast(weights[j]), sum); }
    }
    return sum;
}
#endif

/// The same for a tile of which some keys are masked and V is not all finite, as in values.hpp. There is a
/// weight for each key.
inline void narrow_values_carefully(const value_sums& s, const tile& v) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
        for (std::int64_t x = 0; x < s.columns; x += lanes) {
            const float* const weights = s.weights + r * contract::chunk_keys;
            store(s.sums + r * s.columns + x, sum_visible_columns(s, weights, v.data + x, v.stride));
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

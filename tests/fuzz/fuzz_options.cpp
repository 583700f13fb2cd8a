// See fuzz_call.hpp. Nearly all choices are valid; where options contradict each other, all entry points must
// refuse alike.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>

#include "fuzz_call.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::const_tensor;
using tilewise::element_type;

constexpr count largest = std::numeric_limits<count>::max();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Mostly near the number of tokens, sometimes as large as can be.
count pick_distance(byte_source& bytes, count tokens) {
    constexpr std::array<count, 6> extremes = {largest,        largest - 1,          count{1} << 61,
                                               count{1} << 31, (count{1} << 24) + 1, 0xffff'ffff};
    return bytes.one_in(12) ? bytes.pick(extremes) : bytes.between(0, tokens + 9);
}

/// Ascending numbers from `first` on.
std::span<const count> ascend(byte_source& bytes, fuzz_memory& memory, count how_many, count first,
                              count most_step) {
    const std::span<count> made = make_numbers(memory, how_many);
    for (count& number : made) {
        number = first;
        first += bytes.between(0, most_step);
    }
    return made;
}

/// Starts of packed sequences, and the longest of them.
std::span<const count> pick_starts(byte_source& bytes, fuzz_memory& memory, count sequences, count tokens,
                                   count& longest) {
    const std::span<count> starts = make_numbers(memory, sequences + 1);
    for (count& start : starts) { start = bytes.between(0, tokens); }
    std::sort(starts.begin(), starts.end());
    longest = 0;
    for (std::size_t n = 1; n < starts.size(); ++n) {
        longest = std::max(longest, starts[n] - starts[n - 1]);
    }
    return starts;
}

extents pick_grid(byte_source& bytes, const fuzz_call& call, count rows, count columns) {
    const std::uint8_t choice = bytes.byte();
    return {(choice & 1U) != 0 ? 1 : call.sequences, (choice & 2U) != 0 ? 1 : call.q.heads(),
            (choice & 4U) != 0 ? 1 : rows, columns};
}

std::span<const float> pick_per_head(byte_source& bytes, fuzz_call& call, bool must_be_finite) {
    const auto heads = static_cast<std::size_t>(call.q.heads());
    const std::span<float> made(call.memory.values<float>(heads), heads);
    number_mixture mixture = pick_mixture(bytes);
    for (float& value : made) {
        value = next_number(mixture);
        const float size = value < 0 ? -value : value;
        if (must_be_finite && !(size < infinity)) { value = 0.5F; }
    }
    return made;
}

/// Depends on nothing but the score and its place.
float changed(std::uint8_t change, const tilewise::score_tile& tile, count i, count j, float score) {
    const auto number = [](count value) { return static_cast<std::uint64_t>(value); };
    const std::uint64_t place = number(tile.batch) * 31 + number(tile.head) * 17 +
                                number(tile.first_query + i) * 7 + number(tile.query_position + i) * 3 +
                                number(tile.first_key + j) * 5;
    if (change % 4 >= 1 && place % 7 == change % 7U) { return -infinity; }
    if (change % 4 >= 2 && place % 61 == change % 61U) { return std::bit_cast<float>(0x7fc12345U); }
    if (change % 4 == 3 && place % 53 == change % 53U) { return infinity; }
    return score + static_cast<float>(place % 5);
}

void change_scores(void* context, const tilewise::score_tile& tile) noexcept {
    const std::uint8_t change = *static_cast<const std::uint8_t*>(context);
    for (count i = 0; i < tile.queries; ++i) {
        for (count j = 0; j < tile.keys; ++j) {
            float& score = tile.scores[i * tile.query_stride + j * tile.key_stride];
            score = changed(change, tile, i, j, score);
        }
    }
}

}  // namespace

void choose_packing(byte_source& bytes, fuzz_call& call) {
    call.sequences = bytes.between(1, 5);
    call.how.query_starts =
        pick_starts(bytes, call.memory, call.sequences, call.q.tokens(), call.longest_queries);
    if (call.is_paged) { return; }
    call.how.key_starts = pick_starts(bytes, call.memory, call.sequences, call.k.tokens(), call.longest_keys);
}

void choose_pages(byte_source& bytes, fuzz_call& call, count table_pages) {
    const count page_keys = call.k.tokens();
    const_tensor& table = call.how.block_table;
    table = call.memory.input(bytes, element_type::i32, {call.sequences, 1, 1, table_pages});
    const std::span<count> lengths = make_numbers(call.memory, call.sequences);
    count longest = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
        const count most = bytes.one_in(3) ? table_pages * page_keys : call.longest_keys;
        lengths[s] = bytes.between(0, most);
        longest = std::max(longest, lengths[s]);
        // Page numbers beyond the length are left as they are: any.
        for (count n = 0; n * page_keys < lengths[s]; ++n) {
            const count place = static_cast<count>(s) * table.strides[0] + n * table.strides[3];
            auto* const entry = static_cast<std::byte*>(const_cast<void*>(table.data)) + 4 * place;
            const auto page = static_cast<std::int32_t>(bytes.between(0, call.k.batch() - 1));
            std::memcpy(entry, &page, sizeof page);
        }
    }
    call.longest_keys = longest;
    call.how.key_lengths = lengths;
}

void choose_positions(byte_source& bytes, fuzz_call& call) {
    tilewise::options& how = call.how;
    constexpr std::array<count, 4> far = {count{1} << 60, (count{1} << 24) + 1, count{1} << 32, 1280};
    const auto pick = [&] { return bytes.one_in(6) ? bytes.pick(far) : bytes.between(0, 300); };
    if (bytes.one_in(6)) { how.key_position = pick(); }
    if (bytes.one_in(6)) {
        const std::span<count> positions = make_numbers(call.memory, call.sequences);
        for (count& position : positions) { position = pick(); }
        how.key_positions = positions;
        if (!bytes.one_in(8)) { how.key_position = 0; }
    }
    if (how.causal == tilewise::causal::top_left && how.query_position.has_value() && !bytes.one_in(4)) {
        how.query_position = how.key_position;
    }
}

void choose_intervals(byte_source& bytes, fuzz_call& call) {
    tilewise::options& how = call.how;
    const count keys = call.longest_keys;
    constexpr std::array alignments = {tilewise::causal::none, tilewise::causal::bottom_right,
                                       tilewise::causal::top_left};
    how.causal = bytes.pick(alignments);
    if (bytes.one_in(4)) { how.window_left = pick_distance(bytes, keys); }
    if (bytes.one_in(5)) { how.window_right = pick_distance(bytes, keys); }
    if (bytes.one_in(5)) { how.prefix = pick_distance(bytes, keys); }
    if (bytes.one_in(6)) { how.attention_chunk = pick_distance(bytes, keys); }
    if (bytes.one_in(5)) {
        constexpr std::array<count, 5> far = {count{1} << 61, -(count{1} << 61), 1 << 24, -(1 << 24),
                                              count{1} << 40};
        how.query_position = bytes.one_in(8) ? bytes.pick(far) : bytes.between(-20, keys + 20);
        if (how.causal == tilewise::causal::top_left && bytes.one_in(2)) { how.query_position = 0; }
    }
    if (bytes.one_in(5)) {
        const count first = bytes.one_in(16) ? -largest - 1 : bytes.between(-3, 20);
        how.documents = ascend(bytes, call.memory, bytes.between(2, 9), first, 150);
    }
    if (!call.is_paged && bytes.one_in(5)) {
        const std::span<count> lengths = make_numbers(call.memory, call.sequences);
        for (std::size_t s = 0; s < lengths.size(); ++s) {
            const count most = call.is_packed ? how.key_starts[s + 1] - how.key_starts[s] : keys;
            lengths[s] = bytes.between(0, most);
        }
        how.key_lengths = lengths;
    }
    if (bytes.one_in(6)) {
        for (const_tensor* side : {&how.ranges.first, &how.ranges.last}) {
            *side =
                call.memory.input(bytes, element_type::i32, pick_grid(bytes, call, call.longest_queries, 1));
        }
    }
}

void choose_tensor_masks(byte_source& bytes, fuzz_call& call) {
    tilewise::options& how = call.how;
    if (bytes.one_in(4)) {
        const element_type type = bytes.one_in(2) ? element_type::bit : element_type::boolean;
        how.mask =
            call.memory.input(bytes, type, pick_grid(bytes, call, call.longest_queries, call.longest_keys));
    }
    if (bytes.one_in(6)) {
        how.blocks.query_block = bytes.one_in(8) ? largest : bytes.between(1, 70);
        how.blocks.key_block = bytes.one_in(8) ? largest : bytes.between(1, 200);
        const count rows = call.longest_queries / how.blocks.query_block +
                           (call.longest_queries % how.blocks.query_block != 0 ? 1 : 0);
        const count columns = call.longest_keys / how.blocks.key_block +
                              (call.longest_keys % how.blocks.key_block != 0 ? 1 : 0);
        how.blocks.visible =
            call.memory.input(bytes, element_type::boolean, pick_grid(bytes, call, rows, columns));
    }
}

void choose_modifiers(byte_source& bytes, fuzz_call& call) {
    tilewise::options& how = call.how;
    constexpr std::array float_types = {element_type::f32, element_type::f16, element_type::bf16};
    constexpr std::array scales = {0.0F, -1.0F, 0.3F, 1e-45F, 3e38F, -3e38F, 1e-38F, 50.0F};
    constexpr std::array caps = {30.0F, 0.5F, 1e-45F, 3e38F, 1e-38F, 1e4F, 1.0F, 1e-6F};
    if (bytes.one_in(4)) { how.scale = bytes.pick(scales); }
    if (bytes.one_in(5)) { how.soft_cap = bytes.pick(caps); }
    if (bytes.one_in(4)) {
        const element_type any = bytes.pick(float_types);
        const element_type type = any == element_type::f32 ? any : result_type(call.kind, any);
        how.bias =
            call.memory.input(bytes, type, pick_grid(bytes, call, call.longest_queries, call.longest_keys));
    }
    if (bytes.one_in(5)) { how.alibi_slopes = pick_per_head(bytes, call, true); }
    if (bytes.one_in(5)) { how.sinks = pick_per_head(bytes, call, false); }
    if (bytes.one_in(6)) {
        call.score_change = bytes.byte();
        how.score_function = {change_scores, &call.score_change};
    }
}

void choose_results(byte_source& bytes, fuzz_call& call) {
    tilewise::extra_results& extra = call.how.extra;
    const auto [batch, heads, queries, dim] = call.q.extents;
    const element_type type = result_type(call.kind, element_type::f32);
    const auto make = [&](const char* name, const extents& sizes) {
        return call.memory.result(bytes, name, type, sizes);
    };
    if (bytes.one_in(2)) { call.how.lse = make("lse", {batch, heads, queries, 1}); }
    if (bytes.one_in(4)) { extra.row_maximum = make("row_maximum", {batch, heads, queries, 1}); }
    if (bytes.one_in(4)) { extra.entropy = make("entropy", {batch, heads, queries, 1}); }
    const count keys = call.is_paged ? call.longest_keys : call.k.tokens();
    if (bytes.one_in(4)) { extra.key_weights = make("key_weights", {batch, heads, 1, keys}); }
    if (bytes.one_in(4) && queries > 0) {
        std::span<count> rows = make_numbers(call.memory, bytes.between(0, std::min<count>(queries, 8)));
        for (count& row : rows) { row = bytes.between(0, queries - 1); }
        std::sort(rows.begin(), rows.end());
        rows = rows.first(static_cast<std::size_t>(std::unique(rows.begin(), rows.end()) - rows.begin()));
        extra.weight_rows = rows;
        extra.weights = make("weights", {batch, heads, static_cast<count>(rows.size()), call.longest_keys});
    }
}

void choose_for_f64(byte_source& bytes, fuzz_call& call) {
    tilewise::options& how = call.how;
    constexpr std::array scales = {0.3, -1.0, 0.0, 5e-324, 1e308, -1e308, 1e-300, 50.0};
    // What is refused is asked for now and then.
    if (!bytes.one_in(16)) { how.score_function = {}; }
    if (bytes.one_in(4)) {
        how.scale_f64 = bytes.pick(scales);
        if (!bytes.one_in(16)) { how.scale.reset(); }
    }
    // It is for bf16 only.
    if (bytes.one_in(4)) { how.arithmetic = tilewise::arithmetic::fastest; }
}

}  // namespace tilewise_tests

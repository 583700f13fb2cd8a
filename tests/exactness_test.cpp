// The promise: the tiled computation gives the bits of the naive one, over all axes pairwise, over every
// pair of lengths, for empty extents, and for random shapes and types.

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "cases.hpp"
#include "pairwise.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;

constexpr std::array<count, 17> lengths = {1,   2,   15,  16,  17,  33,  47,  48,  49,
                                           127, 128, 129, 255, 256, 257, 385, 1000};
constexpr std::array<std::array<count, 2>, 13> dims = {{{1, 1},
                                                        {3, 3},
                                                        {8, 8},
                                                        {31, 31},
                                                        {64, 64},
                                                        {80, 80},
                                                        {128, 128},
                                                        {192, 128},
                                                        {256, 256},
                                                        {576, 512},
                                                        {64, 1},
                                                        {1, 64},
                                                        {37, 101}}};
constexpr std::array<std::array<count, 2>, 8> heads = {
    {{1, 1}, {2, 2}, {3, 1}, {4, 2}, {8, 1}, {9, 3}, {5, 5}, {7, 1}}};
constexpr std::array<count, 3> batches = {1, 2, 3};
constexpr std::array<float, 5> scales = {0.125F, 1.0F, -0.3F, 0.0F, 40.0F};

// The order of the axes in a selection.
enum axis_index : std::size_t {
    of_dims,
    of_heads,
    of_queries,
    of_keys,
    of_q,
    of_k,
    of_v,
    of_out,
    of_causal,
    of_batch,
    of_scale,
    of_q_type,
    of_k_type,
    of_v_type,
    of_out_type,
    axes
};

// An unset axis counts as the least work that it can be.
template <std::size_t n>
count value_or_1(const std::array<count, n>& values, std::size_t index) {
    return index == unset ? 1 : values[index];
}

attention_case case_of(const selection& chosen) {
    attention_case made;
    made.batch = value_or_1(batches, chosen[of_batch]);
    made.queries = value_or_1(lengths, chosen[of_queries]);
    made.keys = value_or_1(lengths, chosen[of_keys]);
    made.heads = chosen[of_heads] == unset ? 1 : heads[chosen[of_heads]][0];
    made.kv_heads = chosen[of_heads] == unset ? 1 : heads[chosen[of_heads]][1];
    made.key_dim = chosen[of_dims] == unset ? 1 : dims[chosen[of_dims]][0];
    made.value_dim = chosen[of_dims] == unset ? 1 : dims[chosen[of_dims]][1];
    for (const std::size_t tensor : {of_q, of_k, of_v, of_out}) {
        made.layouts[tensor - of_q] = chosen[tensor] == unset ? 0 : chosen[tensor];
    }
    for (const std::size_t tensor : {of_q_type, of_k_type, of_v_type, of_out_type}) {
        if (chosen[tensor] != unset) { made.types[tensor - of_q_type] = float_types[chosen[tensor]]; }
    }
    if (chosen[of_causal] != unset) { made.causal = all_causal[chosen[of_causal]]; }
    if (chosen[of_scale] != unset && scales[chosen[of_scale]] != 0.125F) {
        made.scale = scales[chosen[of_scale]];
    }
    return made;
}

std::vector<selection> covering_selection(count most_work) {
    const std::size_t inputs = all_layouts().size();
    std::vector<std::size_t> sizes(axes);
    sizes[of_dims] = dims.size();
    sizes[of_heads] = heads.size();
    sizes[of_queries] = sizes[of_keys] = lengths.size();
    sizes[of_q] = sizes[of_k] = sizes[of_v] = inputs;
    sizes[of_out] = output_layouts;
    sizes[of_causal] = all_causal.size();
    sizes[of_batch] = batches.size();
    sizes[of_scale] = scales.size();
    for (const std::size_t tensor : {of_q_type, of_k_type, of_v_type, of_out_type}) {
        sizes[tensor] = float_types.size();
    }
    return cover_pairs(sizes, [=](const selection& chosen) { return case_of(chosen).work() <= most_work; });
}

}  // namespace

TEST_CASE("exactness: a few rows against many keys, on any number of threads") {
    const std::vector<std::int64_t> key_counts =
        isa_is_slow() ? std::vector<std::int64_t>{700} : std::vector<std::int64_t>{511, 512, 513, 3000};
    for (const std::int64_t keys : key_counts) {
        for (const std::int64_t queries : {1, 2, 7}) {
            for (const std::int64_t query_heads : {1, 4, 12}) {
                const attention_case which{.heads = query_heads,
                                           .kv_heads = query_heads == 12 ? 2 : 1,
                                           .queries = queries,
                                           .keys = keys,
                                           .key_dim = 72,
                                           .value_dim = 50,
                                           .causal = tilewise::causal::bottom_right};
                check_exact(which, make_inputs(which), all_settings());
            }
        }
    }
}

TEST_CASE("exactness: all axes, pairwise") {
    const count most_work = by_effort(600'000, 40'000'000, 130'000'000);
    const auto selections = covering_selection(most_work);
    std::size_t number = 0;
    for (const selection& chosen : selections) {
        attention_case made = case_of(chosen);
        made.seed = ++number;
        check_exact(made, make_inputs(made), number);
    }
    MESSAGE(number, " cases");
}

TEST_CASE("exactness: empty extents") {
    std::size_t number = 0;
    for (const int empty : {0, 1, 2, 3, 4, 5}) {
        for (const auto causal : all_causal) {
            attention_case made{.batch = 2,
                                .heads = 4,
                                .kv_heads = 2,
                                .queries = 20,
                                .keys = 17,
                                .key_dim = 5,
                                .value_dim = 3,
                                .causal = causal,
                                .scale = 1.0F};
            (empty == 0   ? made.batch
             : empty == 1 ? made.heads
             : empty == 2 ? made.queries
             : empty == 3 ? made.keys
             : empty == 4 ? made.key_dim
                          : made.value_dim) = 0;
            if (empty == 1) { made.kv_heads = 0; }
            made.layouts = {number % 3, (number + 1) % 3, number % 2, number % 4};
            check_exact(made, make_inputs(made), all_settings());
            ++number;
        }
    }
}

TEST_CASE("exactness: random shapes") {
    random_source random(20240229);
    const count cases = by_effort(40, 120, 400);
    const count most_work = by_effort(300'000, 3'000'000, 8'000'000);
    for (count number = 0; number < cases; ++number) {
        attention_case made;
        do {
            made.batch = random.between(1, 3);
            made.kv_heads = random.between(1, 4);
            made.heads = made.kv_heads * random.between(1, 5);
            made.queries = random.between(1, 300);
            made.keys = random.between(1, 600);
            made.key_dim = random.between(1, 200);
            made.value_dim = random.between(1, 200);
        } while (made.work() > most_work);
        made.causal = all_causal[static_cast<std::size_t>(random.between(0, 2))];
        for (std::size_t tensor = 0; tensor < 3; ++tensor) {
            made.layouts[tensor] = static_cast<std::size_t>(random.bits() % all_layouts().size());
        }
        made.layouts[3] = static_cast<std::size_t>(random.bits() % output_layouts);
        if (random.bits() % 2 == 0) { made.scale = random.normal(); }
        for (auto& type : made.types) { type = float_types[random.bits() % float_types.size()]; }
        made.seed = static_cast<std::uint64_t>(number) + 1000;
        check_exact(made, make_inputs(made), static_cast<std::size_t>(number));
    }
}

TEST_CASE("exactness: packed query, key and value heads of one projection") {
    const count batch = 2;
    const count tokens = by_effort(70, 130, 260);
    for (const auto& [query_heads, kv_heads] : heads) {
        for (const auto causal : all_causal) {
            const attention_case made{.batch = batch,
                                      .heads = query_heads,
                                      .kv_heads = kv_heads,
                                      .queries = tokens,
                                      .keys = tokens,
                                      .key_dim = 40,
                                      .value_dim = 40,
                                      .causal = causal};
            std::vector<float> packed(
                static_cast<std::size_t>(batch * tokens * (query_heads + 2 * kv_heads) * 40));
            random_source random(17);
            for (float& value : packed) { value = random.normal(); }
            const auto views = tilewise::packed_qkv(packed.data(), batch, tokens, query_heads, kv_heads, 40);

            const results want = make_results(made);
            const results got = make_results(made);
            tilewise::reference::attention(views.q, views.k, views.v, want.out.view(),
                                           {.causal = causal, .lse = want.lse.view()});
            tilewise::attention(views.q, views.k, views.v, got.out.view(),
                                {.causal = causal, .lse = got.lse.view()});
            CHECK(first_difference(got, want) == "");
        }
    }
}

TEST_CASE("the covering selection covers every allowed pair") {
    const std::vector<std::size_t> sizes = {4, 3, 5, 2};
    const auto allowed = [](const selection& chosen) { return !(chosen[0] == 1 && chosen[2] == 4); };
    const auto made = cover_pairs(sizes, allowed);
    CHECK(made.size() < 30);  // of 120
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        for (std::size_t other = 0; other < axis; ++other) {
            for (std::size_t value = 0; value < sizes[axis]; ++value) {
                for (std::size_t other_value = 0; other_value < sizes[other]; ++other_value) {
                    bool found = false;
                    for (const selection& chosen : made) {
                        CHECK(allowed(chosen));
                        found = found || (chosen[axis] == value && chosen[other] == other_value);
                    }
                    CHECK(found == !(other == 0 && axis == 2 && other_value == 1 && value == 4));
                }
            }
        }
    }
}

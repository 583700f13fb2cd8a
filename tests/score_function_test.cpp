// The caller's score function: what it says means the same as the options that say it.

#include <doctest/doctest.h>
#include <cstddef>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "score_functions.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::causal;
using tilewise::element_type;
using tilewise::score_tile;

void do_nothing(void* /*context*/, const score_tile& /*tile*/) noexcept {}

/// Masks two keys of five, whatever their scores.
bool is_kept(count key) { return key % 5 != 2 && key % 5 != 4; }
void mask_some(void* /*context*/, const score_tile& tile) noexcept {
    for_each_score(tile, [](count, count j, float& score) {
        if (!is_kept(j)) { score = -infinity; }
    });
}

/// A bias for each batch entry, head, query and key, as a tensor and as a function with the same memory.
struct bias_tensor {
    owned_tensor values;

    explicit bias_tensor(const attention_case& sizes)
        : values({sizes.batch, sizes.heads, sizes.queries, sizes.keys}) {
        random_source random(5);
        values.fill([&] { return random.between(1, 9) == 1 ? -infinity : random.normal(); });
    }
    [[nodiscard]] tilewise::score_function function() const {
        return {[](void* context, const score_tile& tile) noexcept {
                    const auto& of = *static_cast<const owned_tensor*>(context);
                    for_each_score(tile, [&](count i, count j, float& score) {
                        score += of.at(tile.batch, tile.head, tile.first_query + i, j);
                    });
                },
                const_cast<owned_tensor*>(&values)};
    }
};

}  // namespace

TEST_CASE("score function: one that adds a bias gives the bits of the bias") {
    for (const auto& [heads, kv_heads] : {std::pair<count, count>{6, 2}, {3, 3}, {5, 1}}) {
        const attention_case sizes = sizes_of(90, 300, 2, heads, kv_heads);
        const inputs given = make_inputs(sizes);
        const bias_tensor bias(sizes);
        tilewise::options with_bias{.causal = causal::bottom_right, .window_left = 150, .soft_cap = 2.0F};
        for (const setting& how : all_settings()) {
            with_bias.threads = how.threads;
            with_bias.scratch_budget = how.scratch_budget;
            tilewise::options with_function = with_bias;
            with_bias.bias = bias.values.view();
            with_function.bias = {};
            with_function.score_function = bias.function();
            CHECK(first_difference(attend(sizes, given, with_function, every(7, 90)),
                                   attend(sizes, given, with_bias, every(7, 90))) == "");
        }
    }
}

TEST_CASE("score function: one that does nothing gives the bits of a bias of 0") {
    const attention_case sizes = sizes_of(90, 300);
    const inputs given = make_inputs(sizes);
    const std::vector<float> zero(300, 0.0F);
    const all_results want =
        attend(sizes, given,
               {.scale = 0.3F, .bias = {zero.data(), element_type::f32, {1, 1, 1, 300}, {0, 0, 0, 1}}}, {1});
    const all_results got = attend(sizes, given, {.scale = 0.3F, .score_function = {do_nothing}}, {1});
    CHECK(first_difference(got, want) == "");
}

TEST_CASE("score function: -inf masks the key, whatever its score and value") {
    const attention_case sizes = sizes_of(60, 260);
    const inputs clean = make_inputs(sizes);
    const inputs dirty = make_inputs(sizes);
    std::vector<std::uint8_t> mask;
    for (count j = 0; j < 260; ++j) {
        mask.push_back(is_kept(j) ? 1 : 0);
        if (is_kept(j)) { continue; }
        for (count h = 0; h < 2; ++h) {
            dirty.k.at(1, h, j, 3) = j % 2 == 0 ? quiet_nan : infinity;
            dirty.v.at(1, h, j, 3) = j % 2 == 0 ? -infinity : quiet_nan;
        }
    }
    for (const inputs* both : {&clean, &dirty}) { both->q.at(0, 4, 9, 0) = quiet_nan; }
    const all_results want =
        attend(sizes, clean,
               {.mask = {mask.data(), element_type::boolean, {1, 1, 1, 260}, {0, 0, 0, 1}},
                .score_function = {do_nothing}},
               every(1, 60));
    const all_results got = attend(sizes, dirty, {.score_function = {mask_some}}, every(1, 60));
    CHECK(first_difference(got, want) == "");
    // A row of NaN has weight 0 where keys are masked, and NaN elsewhere.
    for (count j = 0; j < 260; ++j) {
        CHECK(bits_of(got.weights.at(0, 4, 9, j)) == (is_kept(j) ? canonical_nan_bits : 0U));
        CHECK((bits_of(got.key_weights.at(1, 4, 0, j)) == 0U) == !is_kept(j));
    }
}

TEST_CASE("score function: a mask is not undone, and what is written to masked scores is ignored") {
    const attention_case sizes = sizes_of(150, 300);
    const inputs given = make_inputs(sizes);
    std::vector<std::uint8_t> mask;
    std::vector<float> bias;
    for (count j = 0; j < 300; ++j) {
        mask.push_back(is_kept(j) ? 1 : 0);
        bias.push_back(is_kept(j) ? 0.0F : -infinity);
    }
    const std::vector<count> key_lengths = {280, 131};
    const std::vector<count> documents = {0, 100, 250};
    const tilewise::options masks[] = {
        {.causal = causal::bottom_right, .window_left = 70, .prefix = 3},
        {.documents = documents},
        {.key_lengths = key_lengths},
        {.mask = {mask.data(), element_type::boolean, {1, 1, 1, 300}, {0, 0, 0, 1}}},
        {.blocks = {{mask.data(), element_type::boolean, {1, 1, 150, 300}, {0, 0, 0, 1}}, 1, 1}},
        {.bias = {bias.data(), element_type::f32, {1, 1, 1, 300}, {0, 0, 0, 1}}},
    };
    for (const tilewise::options& with : masks) {
        INFO("mask ", &with - masks);
        // Which scores are masked is known to this test by their weights alone.
        const all_results seen = attend(sizes, given, with, every(1, 150));
        tilewise::options how = with;
        how.score_function = {do_nothing};
        const all_results want = attend(sizes, given, how, every(1, 150));
        how.score_function = {[](void* context, const score_tile& tile) noexcept {
                                  const auto& weights = static_cast<const all_results*>(context)->weights;
                                  for_each_score(tile, [&](count i, count j, float& score) {
                                      const count query = tile.first_query + i;
                                      if (weights.at(tile.batch, tile.head, query, j) == 0.0F) {
                                          score = j % 2 == 0 ? quiet_nan : 100.0F;
                                      }
                                  });
                              },
                              const_cast<all_results*>(&seen)};
        CHECK(first_difference(attend(sizes, given, how, every(1, 150)), want) == "");
    }
}

TEST_CASE("score function: one that masks all keys leaves rows that see none") {
    const attention_case sizes = sizes_of(40, 140);
    const auto mask_all = [](void*, const score_tile& tile) noexcept {
        for_each_score(tile, [](count, count, float& score) { score = -infinity; });
    };
    const inputs given = make_inputs(sizes);
    given.v.fill([] { return quiet_nan; });
    const all_results got = attend(sizes, given, {.score_function = {mask_all}}, {0, 39});
    for (const count i : {0, 17, 39}) {
        CHECK(bits_of(got.out.at(1, 5, i, 7)) == 0);
        CHECK(got.lse.at(1, 5, i, 0) == -infinity);
        CHECK(got.row_maximum.at(1, 5, i, 0) == -infinity);
        CHECK(bits_of(got.entropy.at(1, 5, i, 0)) == 0);
    }
    CHECK(bits_of(got.weights.at(1, 5, 1, 139)) == 0);
    CHECK(bits_of(got.key_weights.at(1, 5, 0, 139)) == 0);
}

TEST_CASE("score function: a causal mask written as one is the causal mask") {
    for (const auto& [queries, keys] : {std::pair<count, count>{200, 200}, {150, 300}, {300, 150}}) {
        const attention_case sizes = sizes_of(queries, keys);
        const inputs given = make_inputs(sizes);
        const std::vector<count> chosen = every(11, queries);
        const all_results want =
            attend(sizes, given, {.causal = causal::bottom_right, .score_function = {do_nothing}}, chosen);
        CHECK(first_difference(attend(sizes, given, {.score_function = {be_causal}}, chosen), want) == "");
        const all_results top =
            attend(sizes, given, {.causal = causal::top_left, .score_function = {do_nothing}}, chosen);
        CHECK(first_difference(
                  attend(sizes, given, {.query_position = 0, .score_function = {be_causal}}, chosen), top) ==
              "");
    }
}

}  // namespace tilewise_tests

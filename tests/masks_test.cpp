// Masks and score modifiers, alone and in any combination: the tiled computation has the naive one's bits,
// and both mean what a float64 model of the options' descriptions says.

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <tilewise/reference.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "mask_cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;

attention_case random_sizes(random_source& random, tilewise::arithmetic how = tilewise::arithmetic::exact) {
    attention_case sizes;
    sizes.batch = random.between(1, 2);
    sizes.kv_heads = random.between(1, 2);
    sizes.heads = sizes.kv_heads * random.between(1, 3);
    sizes.queries = random.between(1, random.between(1, 8) == 1 ? 400 : 140);
    sizes.keys = random.between(1, random.between(1, 6) == 1 ? 700 : 150);
    sizes.key_dim = random.between(1, 40);
    sizes.value_dim = random.between(1, 40);
    sizes.seed = random.bits();
    for (auto& type : sizes.types) { type = float_types[random.bits() % float_types.size()]; }
    if (how == tilewise::arithmetic::fastest) {
        sizes.arithmetic = how;
        std::copy_n(bf16_types.begin(), 3, sizes.types.begin());
    }
    return sizes;
}

/// Decoding with many keys, of which those of all heads lie side by side.
attention_case turns_sizes(random_source& random, count number) {
    attention_case sizes;
    sizes.batch = random.between(1, 2);
    sizes.kv_heads = random.between(2, 5);
    sizes.heads = sizes.kv_heads * random.between(1, 2);
    sizes.queries = random.between(1, 2);
    sizes.keys = random.between(2049, 2600);
    sizes.key_dim = 16 * random.between(8, 16) / sizes.kv_heads;
    sizes.value_dim = 16 * random.between(8, 16) / sizes.kv_heads + random.between(0, 1);
    sizes.layouts = {1, 1, 1, 1};
    sizes.seed = random.bits();
    for (auto& type : sizes.types) { type = float_types[random.bits() % float_types.size()]; }
    if (number % 3 == 0) {
        sizes.arithmetic = tilewise::arithmetic::fastest;
        sizes.types = bf16_types;
    }
    return sizes;
}

/// NaN, infinities and other rare values at a few places of k and v.
void spoil(random_source& random, const inputs& given, const attention_case& sizes) {
    const float values[] = {quiet_nan, infinity, -infinity, 1e-41F, -0.0F, 3e38F};
    for (int n = 0; n < 3; ++n) {
        const count b = random.between(0, sizes.batch - 1);
        const count h = random.between(0, sizes.kv_heads - 1);
        given.k.set(b, h, random.between(0, sizes.keys - 1), random.between(0, sizes.key_dim - 1),
                    values[random.between(0, 5)]);
        given.v.set(b, h, random.between(0, sizes.keys - 1), random.between(0, sizes.value_dim - 1),
                    values[random.between(0, 5)]);
    }
}

/// Runs both formulations and compares their bits.
all_results check_bits(const mask_case& of, const inputs& given, random_source& random) {
    INFO(show(of.sizes), ", ", of.names);
    std::vector<count> rows;
    for (count i = 0; i < of.sizes.queries; i += random.between(1, 40)) { rows.push_back(i); }
    all_results want(of.sizes, rows);
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(),
                                   want.asked_for(of.how));
    tilewise::options how = of.how;
    how.threads = static_cast<int>(random.between(1, 3));
    how.scratch_budget = random.between(1, 4) == 1 ? 1 : 0;
    CHECK(first_difference(attend(of.sizes, given, how, rows), want) == "");
    return want;
}

bool is_near(double want, float got, double tolerance) {
    const auto value = static_cast<double>(got);
    return want == value || std::fabs(want - value) <= tolerance * (1.0 + std::fabs(want));
}

/// Compares with the float64 model; for inputs without rare values.
void check_meaning(const mask_case& of, const inputs& given, const all_results& got) {
    INFO(show(of.sizes), ", ", of.names);
    const attention_case& sizes = of.sizes;
    const float64_results want = model(of, given);
    const double rounding = of.sizes.types[3] == tilewise::element_type::f16    ? 0x1p-11
                            : of.sizes.types[3] == tilewise::element_type::bf16 ? 0x1p-8
                                                                                : 0.0;
    std::size_t at = 0;
    std::size_t row = 0;
    count wrong = 0;
    const auto expect = [&](bool as_wanted) { wrong += as_wanted ? 0 : 1; };
    for (count b = 0; b < sizes.batch; ++b) {
        for (count h = 0; h < sizes.heads; ++h) {
            std::vector<double> key_weights(static_cast<std::size_t>(sizes.keys), 0.0);
            std::size_t chosen = 0;
            for (count i = 0; i < sizes.queries; ++i, ++row) {
                expect(is_near(want.lse[row], got.lse.at(b, h, i, 0), 2e-5));
                expect(is_near(want.largest[row], got.row_maximum.at(b, h, i, 0), 2e-5));
                expect(is_near(want.entropy[row], got.entropy.at(b, h, i, 0), 1e-4));
                for (count x = 0; x < sizes.value_dim; ++x) {
                    const double exact = want.out[at++];
                    const double error = std::fabs(exact - static_cast<double>(got.out.get(b, h, i, x)));
                    expect(error <= 1e-4 + rounding * std::fabs(exact));
                }
                const double* const weights = want.weights.data() + row * key_weights.size();
                for (std::size_t j = 0; j < key_weights.size(); ++j) { key_weights[j] += weights[j]; }
                if (chosen == got.rows.size() || got.rows[chosen] != i) { continue; }
                for (count j = 0; j < sizes.keys; ++j) {
                    expect(is_near(weights[j], got.weights.at(b, h, static_cast<count>(chosen), j), 3e-5));
                }
                ++chosen;
            }
            for (count j = 0; j < sizes.keys; ++j) {
                expect(
                    is_near(key_weights[static_cast<std::size_t>(j)], got.key_weights.at(b, h, 0, j), 1e-4));
            }
        }
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("masks: any combination has the oracle's bits, and means what it says") {
    random_source random(31);
    for (count number = 0; number < by_effort(60, 120, 500); ++number) {
        const attention_case sizes = random_sizes(random);
        const mask_case made = random_masks(random, sizes);
        const inputs given = make_inputs(sizes);
        check_meaning(made, given, check_bits(made, given, random));
    }
}

TEST_CASE("masks: any combination, where key heads take turns") {
    random_source random(34);
    count in_turns = 0;
    for (count number = 0; number < by_effort(8, 40, 200); ++number) {
        const attention_case sizes = turns_sizes(random, number);
        const mask_case made = random_masks(random, sizes);
        const inputs given = make_inputs(sizes);
        if (number % 2 == 0) { spoil(random, given, sizes); }
        const all_results got = check_bits(made, given, random);
        tilewise::options how = got.asked_for(made.how);
        how.extra.key_weights = {};  // which take shared scratch, too
        how.threads = 1;
        const tilewise::plan plan =
            tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
        in_turns += plan.shared_scratch_bytes > 0 ? 1 : 0;
    }
    CHECK(in_turns > 0);
}

TEST_CASE("masks: rare values reach the rows that see them and no others") {
    random_source random(32);
    for (count number = 0; number < by_effort(60, 120, 500); ++number) {
        const attention_case sizes = random_sizes(random);
        const mask_case made = random_masks(random, sizes);
        const inputs given = make_inputs(sizes);
        spoil(random, given, sizes);
        check_bits(made, given, random);
    }
}

TEST_CASE("masks: any combination, and rare values, in the fastest arithmetic") {
    random_source random(33);
    for (count number = 0; number < by_effort(60, 120, 1000); ++number) {
        const attention_case sizes = random_sizes(random, tilewise::arithmetic::fastest);
        const mask_case made = random_masks(random, sizes);
        const inputs given = make_inputs(sizes);
        if (number % 2 == 0) { spoil(random, given, sizes); }
        check_bits(made, given, random);
    }
}

}  // namespace tilewise_tests

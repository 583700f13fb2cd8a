// Masks and score modifiers, alone and in any combination: the tiled computation has the naive one's bits,
// and both mean what a float64 model of the options' descriptions says.

#include <doctest/doctest.h>
#include <cmath>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <tilewise/reference.hpp>
#include <vector>

#include "cases.hpp"
#include "mask_cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;

attention_case random_sizes(random_source& random) {
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
results check_bits(const mask_case& of, const inputs& given, random_source& random) {
    INFO(show(of.sizes), ", ", of.names);
    results want = make_results(of.sizes);
    const results got = make_results(of.sizes);
    tilewise::options how = of.how;
    how.lse = want.lse.view();
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(), how);
    how.lse = got.lse.view();
    how.threads = static_cast<int>(random.between(1, 3));
    how.scratch_budget = random.between(1, 4) == 1 ? 1 : 0;
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
    CHECK(first_difference(got.out.view(), want.out.view()) == "");
    CHECK(first_difference(got.lse.view(), want.lse.view()) == "");
    return want;
}

/// Compares with the float64 model; for inputs without rare values.
void check_meaning(const mask_case& of, const inputs& given, const results& got) {
    INFO(show(of.sizes), ", ", of.names);
    const float64_results want = model(of, given);
    const double rounding = of.sizes.types[3] == tilewise::element_type::f16    ? 0x1p-11
                            : of.sizes.types[3] == tilewise::element_type::bf16 ? 0x1p-8
                                                                                : 0.0;
    std::size_t at = 0;
    std::size_t row = 0;
    count wrong = 0;
    for (count b = 0; b < of.sizes.batch; ++b) {
        for (count h = 0; h < of.sizes.heads; ++h) {
            for (count i = 0; i < of.sizes.queries; ++i) {
                const double lse = want.lse[row++];
                const auto got_lse = static_cast<double>(got.lse.at(b, h, i, 0));
                const bool same = lse == got_lse || std::fabs(lse - got_lse) <= 2e-5 * (1.0 + std::fabs(lse));
                wrong += same ? 0 : 1;
                for (count x = 0; x < of.sizes.value_dim; ++x) {
                    const double exact = want.out[at++];
                    const double error = std::fabs(exact - static_cast<double>(got.out.get(b, h, i, x)));
                    wrong += error <= 1e-4 + rounding * std::fabs(exact) ? 0 : 1;
                }
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

}  // namespace tilewise_tests

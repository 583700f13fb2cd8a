// What the results besides the output mean, without a reference: uniform attention, sums, rows that see
// little or nothing, NaN.

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tilewise/attention.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::causal;

constexpr count heads = 4;
constexpr count key_dim = 16;
constexpr count value_dim = 8;

attention_case sizes_of(count queries, count keys) {
    return {.batch = 2,
            .heads = heads,
            .kv_heads = 2,
            .queries = queries,
            .keys = keys,
            .key_dim = key_dim,
            .value_dim = value_dim};
}

double real(float value) { return static_cast<double>(value); }

/// All results, with the weights of all rows.
all_results attend_all(const attention_case& sizes, const inputs& given, const tilewise::options& how) {
    return attend(sizes, given, how, every(1, sizes.queries));
}

template <class Visit>
void for_each_row(count queries, Visit visit) {
    for (count b = 0; b < 2; ++b) {
        for (count h = 0; h < heads; ++h) {
            for (count i = 0; i < queries; ++i) { visit(b, h, i); }
        }
    }
}

/// Rows that see no key.
bool is_empty_row(const all_results& got, count b, count h, count i, count keys) {
    bool empty = got.row_maximum.at(b, h, i, 0) == -infinity && bits_of(got.entropy.at(b, h, i, 0)) == 0;
    for (count j = 0; j < keys; ++j) { empty = empty && bits_of(got.weights.at(b, h, i, j)) == 0; }
    return empty;
}

/// Scores with the default scale, in float64.
double score(const inputs& given, count b, count h, count i, count j) {
    double sum = 0;
    for (count x = 0; x < key_dim; ++x) {
        sum += real(given.q.at(b, h, i, x)) * real(given.k.at(b, h / 2, j, x));
    }
    return sum / std::sqrt(static_cast<double>(key_dim));
}

}  // namespace

TEST_CASE("result meaning: keys that are all alike share the weight") {
    for (const count keys : {1, 2, 100, 128, 129, 256, 512}) {
        INFO(keys, " keys");
        const count queries = 64;
        const attention_case sizes = sizes_of(queries, keys);
        const inputs given = make_inputs(sizes);
        given.q.fill([] { return 0.0F; });
        const all_results got = attend_all(sizes, given, {});
        const float share = 1.0F / static_cast<float>(keys);
        const bool exact = (keys & (keys - 1)) == 0;
        const auto expect = [&](float value, float want) {
            return exact ? value == want : std::fabs(value - want) <= 1e-6F * want;
        };
        count wrong = 0;
        for_each_row(queries, [&](count b, count h, count i) {
            wrong += bits_of(got.row_maximum.at(b, h, i, 0)) == 0 ? 0 : 1;
            wrong += std::fabs(real(got.entropy.at(b, h, i, 0)) - std::log(keys)) <= 1e-5 ? 0 : 1;
            for (count j = 0; j < keys; ++j) { wrong += expect(got.weights.at(b, h, i, j), share) ? 0 : 1; }
        });
        for (count j = 0; j < keys; ++j) {
            wrong += expect(got.key_weights.at(1, 3, 0, j), static_cast<float>(queries) * share) ? 0 : 1;
        }
        CHECK(wrong == 0);
        CHECK((keys != 1 || bits_of(got.entropy.at(0, 0, 0, 0)) == 0));
    }
}

TEST_CASE("result meaning: a row's weights sum to 1, less the sink's share, and weigh the values") {
    const count queries = 150;
    const count keys = 300;
    const attention_case sizes = sizes_of(queries, keys);
    const inputs given = make_inputs(sizes);
    const std::vector<float> sinks = {0.5F, 4.0F, -3.0F, -infinity};
    for (const bool has_sinks : {false, true}) {
        tilewise::options how{.causal = causal::bottom_right};
        if (has_sinks) { how.sinks = sinks; }
        const all_results got = attend_all(sizes, given, how);
        count wrong = 0;
        for_each_row(queries, [&](count b, count h, count i) {
            double sum = 0;
            double entropy = 0;
            double out = 0;
            for (count j = 0; j < keys; ++j) {
                const double weight = real(got.weights.at(b, h, i, j));
                sum += weight;
                entropy -= weight == 0 ? 0 : weight * std::log(weight);
                out += weight * real(given.v.at(b, h / 2, j, 5));
            }
            const double sink = has_sinks ? real(sinks[static_cast<std::size_t>(h)]) : -HUGE_VAL;
            const double want = 1 - std::exp(sink - real(got.lse.at(b, h, i, 0)));
            wrong += std::fabs(sum - want) <= 1e-5 ? 0 : 1;
            wrong += std::fabs(entropy - real(got.entropy.at(b, h, i, 0))) <= 1e-5 ? 0 : 1;
            wrong += std::fabs(out - real(got.out.at(b, h, i, 5))) <= 1e-5 ? 0 : 1;
        });
        for (count j = 0; j < keys; ++j) {
            double sum = 0;
            for (count i = 0; i < queries; ++i) { sum += real(got.weights.at(1, 1, i, j)); }
            wrong += std::fabs(sum - real(got.key_weights.at(1, 1, 0, j))) <= 1e-5 ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("result meaning: weights below the smallest normal number are no part of the entropy") {
    // The sinks leave the keys about 2^-126.
    const attention_case sizes = sizes_of(20, 60);
    const inputs given = make_inputs(sizes);
    const std::vector<float> sinks = {86.5F, 87.0F, 87.5F, 88.0F};
    const all_results got = attend_all(sizes, given, {.sinks = sinks});
    constexpr auto smallest = static_cast<double>(std::numeric_limits<float>::min());
    count wrong = 0;
    count subnormal = 0;
    for_each_row(20, [&](count b, count h, count i) {
        double entropy = 0;
        for (count j = 0; j < 60; ++j) {
            const double weight = real(got.weights.at(b, h, i, j));
            entropy -= weight < smallest ? 0 : weight * std::log(weight);
            subnormal += weight > 0 && weight < smallest ? 1 : 0;
        }
        wrong += std::fabs(real(got.entropy.at(b, h, i, 0)) - entropy) <= 1e-5 * entropy ? 0 : 1;
    });
    CHECK(wrong == 0);
    CHECK(subnormal > 100);
}

TEST_CASE("result meaning: the row maximum is the largest visible score, of which a sink is none") {
    const count queries = 40;
    const count keys = 260;
    const attention_case sizes = sizes_of(queries, keys);
    const inputs given = make_inputs(sizes);
    const std::vector<float> sinks(heads, 50.0F);
    for (const float scale : {0.25F, -0.25F}) {  // a negative scale is not part of the exponent
        const all_results got = attend(sizes, given, {.scale = scale, .causal = causal::bottom_right}, {});
        const all_results with_sinks =
            attend(sizes, given, {.scale = scale, .causal = causal::bottom_right, .sinks = sinks}, {});
        CHECK(first_difference(with_sinks.row_maximum.view(), got.row_maximum.view()) == "");
        count wrong = 0;
        for_each_row(queries, [&](count b, count h, count i) {
            double largest = -HUGE_VAL;
            for (count j = 0; j <= i + keys - queries; ++j) {
                largest = std::max(largest, score(given, b, h, i, j) * (scale < 0 ? -1 : 1));
            }
            wrong += std::fabs(largest - real(got.row_maximum.at(b, h, i, 0))) <= 1e-5 ? 0 : 1;
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("result meaning: rows that see no key, and one") {
    // Row 20 is the first that sees a key.
    const attention_case sizes = sizes_of(50, 30);
    const inputs given = make_inputs(sizes);
    const std::vector<float> sinks = {0.5F, 4.0F, -3.0F, -infinity};
    const all_results got = attend_all(sizes, given, {.causal = causal::bottom_right});
    const all_results with_sinks = attend_all(sizes, given, {.causal = causal::bottom_right, .sinks = sinks});
    for_each_row(50, [&](count b, count h, count i) {
        CHECK(is_empty_row(got, b, h, i, 30) == (i < 20));
        CHECK(is_empty_row(with_sinks, b, h, i, 30) == (i < 20));
        if (i != 20) { return; }
        CHECK(bits_of(got.entropy.at(b, h, i, 0)) == 0);
        CHECK(got.weights.at(b, h, i, 0) == 1.0F);
        CHECK(std::fabs(real(got.row_maximum.at(b, h, i, 0)) - score(given, b, h, i, 0)) <= 1e-5);
        for (count j = 1; j < 30; ++j) { CHECK(bits_of(got.weights.at(b, h, i, j)) == 0); }
    });
    CHECK(got.key_weights.at(0, 0, 0, 29) == got.weights.at(0, 0, 49, 29));
}

TEST_CASE("result meaning: NaN scores reach their row and the keys that it sees") {
    // Query i is at position i + 100 and sees keys i + 40 to i + 110.
    const attention_case sizes = sizes_of(40, 140);
    const inputs given = make_inputs(sizes);
    given.q.at(0, 1, 3, 2) = quiet_nan;
    given.k.at(1, 0, 60, 1) = quiet_nan;
    const all_results got = attend_all(sizes, given, {.window_left = 60, .window_right = 10});
    const auto is_nan = [](float value) { return bits_of(value) == canonical_nan_bits; };
    count wrong = 0;
    const auto expect_nan = [&](float value, bool nan) {
        wrong += nan ? (is_nan(value) ? 0 : 1) : (std::isfinite(value) ? 0 : 1);
    };
    for_each_row(40, [&](count b, count h, count i) {
        const bool nan = b == 0 ? h == 1 && i == 3 : h < 2 && i <= 20;
        expect_nan(got.row_maximum.at(b, h, i, 0), nan);
        expect_nan(got.entropy.at(b, h, i, 0), nan);
        expect_nan(got.lse.at(b, h, i, 0), nan);
        for (count j = 0; j < 140; ++j) {
            const bool visible = j >= i + 40 && j <= i + 110;
            expect_nan(got.weights.at(b, h, i, j), nan && visible);
            wrong += visible || bits_of(got.weights.at(b, h, i, j)) == 0 ? 0 : 1;
        }
    });
    for (count j = 0; j < 140; ++j) {
        expect_nan(got.key_weights.at(0, 1, 0, j), j >= 43 && j <= 113);
        expect_nan(got.key_weights.at(1, 0, 0, j), j >= 40 && j <= 130);
        expect_nan(got.key_weights.at(1, 2, 0, j), false);
    }
    CHECK(wrong == 0);
}

TEST_CASE("result meaning: NaN values reach the output only") {
    const attention_case sizes = sizes_of(40, 140);
    const inputs clean = make_inputs(sizes);
    const inputs given = make_inputs(sizes);
    given.v.at(0, 1, 77, 3) = quiet_nan;
    const all_results got = attend_all(sizes, given, {});
    const all_results want = attend_all(sizes, clean, {});
    CHECK(bits_of(got.out.at(0, 2, 9, 3)) == canonical_nan_bits);
    CHECK(first_difference(got.row_maximum.view(), want.row_maximum.view()) == "");
    CHECK(first_difference(got.entropy.view(), want.entropy.view()) == "");
    CHECK(first_difference(got.key_weights.view(), want.key_weights.view()) == "");
    CHECK(first_difference(got.weights.view(), want.weights.view()) == "");
}

}  // namespace tilewise_tests

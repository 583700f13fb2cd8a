// Results that can be worked out by hand.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

#include "cases.hpp"

using namespace tilewise_tests;

namespace {

const float root_half = 1.0F / std::sqrt(2.0F);

// Numbers as the textbook prints them, with four decimals.
double printed(float value) { return std::round(static_cast<double>(value) * 1e4) / 1e4; }

}  // namespace

TEST_CASE("the textbook's example") {
    const std::array q = {1.0F, 0.0F, 0.0F, 1.0F};
    const std::array k = {1.0F, 0.0F, 1.0F, 1.0F};
    const std::array v = {1.0F, 2.0F, 3.0F, 4.0F};
    const std::array identity = {1.0F, 0.0F, 0.0F, 1.0F};
    std::array<float, 4> out{};
    std::array<float, 2> lse{};
    const auto view = [](auto& values) { return tilewise::bhsd(values.data(), 1, 1, 2, 2); };

    // The default scale is 1 / sqrt(2); stated, it gives the same.
    for (const tilewise::options& how : {tilewise::options{}, tilewise::options{.scale = root_half}}) {
        tilewise::attention(view(q), view(k), view(identity), view(out), how);
        CHECK(out[0] == 0.5F);
        CHECK(out[1] == 0.5F);
        CHECK(printed(out[2]) == 0.3302);
        CHECK(printed(out[3]) == 0.6698);
        tilewise::attention(view(q), view(k), view(v), view(out), how);
        CHECK(out[0] == 2.0F);
        CHECK(out[1] == 3.0F);
        CHECK(printed(out[2]) == 2.3395);
        CHECK(printed(out[3]) == 3.3395);
    }

    tilewise::attention(
        view(q), view(k), view(v), view(out),
        {.causal = tilewise::causal::bottom_right, .lse = tilewise::row_values(lse.data(), 1, 1, 2)});
    CHECK(out[0] == 1.0F);
    CHECK(out[1] == 2.0F);
    CHECK(printed(out[2]) == 2.3395);
    CHECK(printed(out[3]) == 3.3395);
    // Row 0 sees the score 1 / sqrt(2) only; row 1 sees 0 and 1 / sqrt(2).
    CHECK(static_cast<double>(lse[0]) == doctest::Approx(std::sqrt(0.5)).epsilon(1e-7));
    CHECK(static_cast<double>(lse[1]) ==
          doctest::Approx(std::log(1.0 + std::exp(std::sqrt(0.5)))).epsilon(1e-7));
}

TEST_CASE("with V the identity, the output is the weights: positive, and of sum 1") {
    const attention_case which{.heads = 2,
                               .kv_heads = 2,
                               .queries = 50,
                               .keys = 150,
                               .key_dim = 20,
                               .value_dim = 150,
                               .causal = tilewise::causal::bottom_right};
    const inputs given = make_inputs(which);
    given.v.fill([] { return 0.0F; });
    for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t j = 0; j < 150; ++j) { given.v.at(0, h, j, j) = 1.0F; }
    }
    const results got = tiled(which, given);
    for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < 50; ++i) {
            double sum = 0.0;
            bool all_as_expected = true;
            for (std::int64_t j = 0; j < 150; ++j) {
                const float weight = got.out.at(0, h, i, j);
                const bool visible = j <= i + 100;
                all_as_expected = all_as_expected && (visible ? weight > 0.0F : bits_of(weight) == 0U);
                sum += static_cast<double>(weight);
            }
            CHECK(all_as_expected);
            CHECK(std::abs(sum - 1.0) < 1e-5);
        }
    }
}

TEST_CASE("with Q = 0, the output is the exact mean of the visible values, and lse the log of their number") {
    const attention_case which{
        .queries = 300, .keys = 300, .key_dim = 5, .value_dim = 6, .causal = tilewise::causal::top_left};
    const inputs given = make_inputs(which);
    given.q.fill([] { return 0.0F; });
    random_source random(3);
    given.v.fill([&] { return static_cast<float>(random.between(-1000, 1000)); });
    const results got = tiled(which, given);
    for (std::int64_t x = 0; x < 6; ++x) {
        float sum = 0.0F;  // of small integers: exact
        for (std::int64_t i = 0; i < 300; ++i) {
            sum += given.v.at(0, 0, i, x);
            const auto visible = static_cast<float>(i + 1);
            CHECK(bits_of(got.out.at(0, 0, i, x)) == bits_of(sum / visible));
            CHECK(std::abs(got.lse.at(0, 0, i, 0) - std::log(visible)) <= 1e-6F);
        }
    }
    CHECK(bits_of(got.lse.at(0, 0, 0, 0)) == 0U);
}

TEST_CASE("queries that each match one key select its value exactly") {
    // One-hot queries and keys, the keys in another order, and a scale at which all others underflow.
    constexpr std::int64_t count = 200;
    const attention_case which{
        .queries = count, .keys = count, .key_dim = count, .value_dim = 9, .scale = 1000.0F};
    const inputs given = make_inputs(which);
    given.q.fill([] { return 0.0F; });
    given.k.fill([] { return 0.0F; });
    for (std::int64_t i = 0; i < count; ++i) {
        given.q.at(0, 0, i, i) = 1.0F;
        given.k.at(0, 0, (i * 77 + 13) % count, i) = 1.0F;
    }
    const results got = tiled(which, given);
    for (std::int64_t i = 0; i < count; ++i) {
        // The weight is not exactly 1 (2^f rounds), but it divides itself.
        for (std::int64_t x = 0; x < 9; ++x) {
            const double want = static_cast<double>(given.v.at(0, 0, (i * 77 + 13) % count, x));
            CHECK(std::abs(static_cast<double>(got.out.at(0, 0, i, x)) - want) <= std::abs(want) * 0x1p-23);
        }
        CHECK(got.lse.at(0, 0, i, 0) == doctest::Approx(1000.0).epsilon(1e-7));
    }
}

TEST_CASE("one visible key gives its value, whatever its score") {
    // Also where float32 no longer resolves scores: the weight must not become 0 or infinite. Beyond 2^127
    // the score times log2 e is no longer finite.
    random_source random(8);
    for (int exponent = -149; exponent <= 126; ++exponent) {
        for (int number = 0; number < 20; ++number) {
            const attention_case which{.queries = 3,
                                       .keys = 1,
                                       .key_dim = 1,
                                       .value_dim = 1,
                                       .scale = number % 2 == 0 ? 1.0F : 0.69314718F};
            const inputs given = make_inputs(which);
            // Both just below a power of two, and anywhere.
            const float significand =
                number < 8 ? 2.0F - 0x1p-23F * static_cast<float>(number + 1) : 1.0F + random.uniform();
            const float score = std::ldexp(significand, exponent);
            given.k.fill([] { return 1.0F; });
            given.q.at(0, 0, 0, 0) = score;
            given.q.at(0, 0, 1, 0) = -score;
            given.q.at(0, 0, 2, 0) = score / 3.0F;
            const results got = tiled(which, given);
            const float want = given.v.at(0, 0, 0, 0);
            for (std::int64_t i = 0; i < 3; ++i) {
                INFO("score ", show(given.q.at(0, 0, i, 0)), " scale ", show(*which.scale));
                CHECK(std::abs(got.out.at(0, 0, i, 0) - want) <= std::abs(want) * 0x1p-23F);
                CHECK(std::abs(got.lse.at(0, 0, i, 0) - given.q.at(0, 0, i, 0) * *which.scale) <=
                      std::abs(score) * *which.scale * 0x1p-22F + 0x1p-23F);
            }
        }
    }
}

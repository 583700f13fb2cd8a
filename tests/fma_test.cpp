// Multiply-adds are fused, and rounded once, on every instruction set: seen from outside, through dot
// products that come out wrong if one of them is not.
//
// A trap is x, y, z with sum = fma(x, y, z), where the imitation in question gives another value. With the
// query (1, x, 1) and the key (z, y, -sum), the score is exactly 0 if the chain is right. The scale makes
// a score that is off by one unit in the last place visible, so all weights of a row of such keys are equal
// if and only if no trap has sprung.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
constexpr count traps_per_query = 37;
constexpr count trapped_queries = 12;

struct trap {
    float y = 0.0F;
    float z = 0.0F;
    float sum = 0.0F;
};

/// One x, and traps for it.
struct trapped_query {
    float x = 0.0F;
    std::vector<trap> traps;
};

float multiply_then_add(float x, float y, float z) {
    const volatile float product = x * y;
    return product + z;
}

float through_double(float x, float y, float z) {
    const volatile double product = static_cast<double>(x) * static_cast<double>(y);
    return static_cast<float>(product + static_cast<double>(z));
}

using imitation = std::function<float(float, float, float)>;

/// Searches for traps: draws x, then y and z for it.
std::vector<trapped_query> find_traps(const imitation& wrong, const std::function<float()>& draw_x,
                                      const std::function<trap(float x)>& draw) {
    std::vector<trapped_query> found;
    for (int drawn_x = 0; drawn_x < 100'000 && std::ssize(found) < trapped_queries; ++drawn_x) {
        trapped_query query{draw_x(), {}};
        for (int attempt = 0; attempt < 400 && std::ssize(query.traps) < traps_per_query; ++attempt) {
            trap drawn = draw(query.x);
            drawn.sum = std::fma(query.x, drawn.y, drawn.z);
            const bool springs = bits_of(wrong(query.x, drawn.y, drawn.z)) != bits_of(drawn.sum);
            if (springs && std::isfinite(drawn.sum)) { query.traps.push_back(drawn); }
        }
        if (std::ssize(query.traps) == traps_per_query) { found.push_back(query); }
    }
    REQUIRE(std::ssize(found) == trapped_queries);
    return found;
}

/// Checks that no trap springs, with few and with many query rows: those are different code paths.
void check_traps(const std::vector<trapped_query>& queries, float scale) {
    for (const count rows : {1, 5, 20, 50}) {
        const attention_case which{.heads = trapped_queries,
                                   .kv_heads = trapped_queries,
                                   .queries = rows,
                                   .keys = traps_per_query,
                                   .key_dim = 3,
                                   .value_dim = traps_per_query,
                                   .scale = scale};
        const inputs given = make_inputs(which);
        given.q.fill([] { return 1.0F; });
        given.v.fill([] { return 0.0F; });
        for (count h = 0; h < trapped_queries; ++h) {
            const trapped_query& query = queries[static_cast<std::size_t>(h)];
            for (count i = 0; i < rows; ++i) { given.q.at(0, h, i, 1) = query.x; }
            for (count j = 0; j < traps_per_query; ++j) {
                const trap& set = query.traps[static_cast<std::size_t>(j)];
                given.k.at(0, h, j, 0) = set.z;
                given.k.at(0, h, j, 1) = set.y;
                given.k.at(0, h, j, 2) = -set.sum;
                given.v.at(0, h, j, j) = 1.0F;
            }
        }
        const results want = make_results(which);
        want.out.fill([] { return 1.0F / static_cast<float>(traps_per_query); });
        INFO("query rows ", rows);
        CHECK(first_difference(tiled(which, given).out.view(), want.out.view()) == "");
        CHECK(first_difference(naive(which, given).out.view(), want.out.view()) == "");
    }
}

}  // namespace

TEST_CASE("fma: a product is not rounded before it is added") {
    random_source random(1);
    const auto significand = [&] { return 1.0F + random.uniform(); };
    const auto cancelling = [&](float x) {
        const float y = significand();
        return trap{y, -(x * y), 0.0F};
    };
    check_traps(find_traps(multiply_then_add, significand, cancelling), 0x1p60F);
    const auto anything = [&](float) { return trap{significand(), random.normal() * 4.0F, 0.0F}; };
    check_traps(find_traps(multiply_then_add, significand, anything), 0x1p40F);
}

TEST_CASE("fma: a product that would overflow alone does not") {
    random_source random(2);
    const auto large = [&] { return (1.0F + random.uniform()) * 0x1p100F; };
    const auto back_in_range = [&](float) {
        return trap{(1.0F + random.uniform()) * 0x1p27F, -0x1.8p127F, 0.0F};
    };
    check_traps(find_traps(multiply_then_add, large, back_in_range), 1.0F);
}

TEST_CASE("fma: no double rounding next to a tie") {
    // z has the last place 2, and x * y is so close to 1 that their sum in binary64 is the tie itself.
    random_source random(3);
    for (const float sign : {1.0F, -1.0F}) {
        const auto x = [&] { return 1.0F + random.uniform(); };
        const auto near_tie = [&](float of_x) {
            return trap{1.0F / of_x,
                        sign * (0x1p24F + 2.0F * static_cast<float>(random.between(1, 0x7ffffe))), 0.0F};
        };
        check_traps(find_traps(through_double, x, near_tie), 1000.0F);
    }
}

TEST_CASE("fma: no double rounding of subnormal results") {
    // The same at the bottom of the range: x * y is close to 2^-150, half of the last place there is.
    random_source random(4);
    for (const float sign : {1.0F, -1.0F}) {
        const auto x = [&] { return (1.0F + random.uniform()) * 0x1p-75F; };
        const auto near_tie = [&](float of_x) {
            const auto places = static_cast<float>(random.between(0x400000, 0x7fffff));
            return trap{1.0F / (of_x * 0x1p75F) * 0x1p-75F, sign * places * 0x1p-149F, 0.0F};
        };
        check_traps(find_traps(through_double, x, near_tie), std::numeric_limits<float>::max());
    }
}

// The promise for inputs at the edge of binary32: huge, tiny and special scores and values, in places that
// some rows see and others do not. NaN and infinities too must come out in the same rows with the same bits.

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
constexpr float largest = std::numeric_limits<float>::max();
constexpr float smallest_normal = std::numeric_limits<float>::min();
constexpr float smallest = std::numeric_limits<float>::denorm_min();

// Lengths on both sides of the chunk of 128 keys, more and fewer queries than keys.
std::vector<attention_case> shapes() {
    std::vector<attention_case> made;
    for (const auto causal : all_causal) {
        made.push_back({.heads = 2,
                        .kv_heads = 1,
                        .queries = 61,
                        .keys = 290,
                        .key_dim = 24,
                        .value_dim = 24,
                        .causal = causal});
        made.push_back(
            {.batch = 2, .queries = 150, .keys = 131, .key_dim = 7, .value_dim = 33, .causal = causal});
        made.push_back({.heads = 3,
                        .kv_heads = 3,
                        .queries = 1,
                        .keys = 400,
                        .key_dim = 64,
                        .value_dim = 65,
                        .causal = causal});
        made.push_back({.heads = 3,
                        .kv_heads = 1,
                        .queries = 5,
                        .keys = 3,
                        .key_dim = 3,
                        .value_dim = 2,
                        .causal = causal});
    }
    return made;
}

// Checks normal inputs after `change`, on all shapes; with quick effort, on every fourth in turn.
void check_changed(const std::function<void(attention_case&, const inputs&)>& change) {
    static std::size_t turn = 0;
    const std::size_t step = test_effort() == effort::quick ? 4 : 1;
    const std::vector<attention_case> all = shapes();
    for (std::size_t number = turn++ % step; number < all.size(); number += step) {
        attention_case which = all[number];
        which.seed = number + 1;
        const inputs given = make_inputs(which);
        change(which, given);
        check_exact(which, given, turn + number);
    }
}

void multiply(const owned_tensor& all, float factor) {
    const auto& view = all.view();
    for (count b = 0; b < view.batch(); ++b) {
        for (count h = 0; h < view.heads(); ++h) {
            for (count t = 0; t < view.tokens(); ++t) {
                for (count i = 0; i < view.head_dim(); ++i) { all.at(b, h, t, i) *= factor; }
            }
        }
    }
}

// Writes `value` to one element of one token, in all heads of the first batch entry.
void plant(const owned_tensor& into, count token, count place, float value) {
    const auto& view = into.view();
    if (token >= view.tokens()) { return; }
    for (count h = 0; h < view.heads(); ++h) { into.at(0, h, token, place % view.head_dim()) = value; }
}

}  // namespace

TEST_CASE("extremes: scales") {
    for (const float scale :
         {0.0F, -0.0F, 1.0F, -1.0F, 3.0F, 1e3F, 1e6F, 1e10F, 1e30F, -1e30F, largest, -largest, 1e-6F, 1e-30F,
          smallest_normal, smallest, -smallest, 1e-42F, 2.4e38F}) {
        check_changed([=](attention_case& which, const inputs&) { which.scale = scale; });
    }
}

TEST_CASE("extremes: sizes of q, from denormal products to overflow") {
    for (const float size : {0.0F, 1e-44F, 1e-38F, 1e-20F, 1e-3F, 30.0F, 1e3F, 1e5F, 1e6F, 1e7F, 1e8F, 1e9F,
                             1e10F, 1e20F, 1e30F, 1e37F, 1e38F}) {
        check_changed([=](attention_case&, const inputs& given) { multiply(given.q, size); });
    }
}

TEST_CASE("extremes: sizes of v, from denormal to overflow") {
    for (const float size :
         {0.0F, -0.0F, smallest, 1e-42F, smallest_normal, 1e-30F, 1e30F, 1e37F, 0.28F * largest}) {
        check_changed([=](attention_case&, const inputs& given) { multiply(given.v, size); });
    }
}

TEST_CASE("extremes: all of q, k and v denormal") {
    check_changed([](attention_case& which, const inputs& given) {
        multiply(given.q, 1e-40F);
        multiply(given.k, 1e-5F);
        multiply(given.v, 1e-41F);
        which.scale = largest;
    });
    // The first factor is normal here, and its product with the second is not.
    check_changed([](attention_case& which, const inputs& given) {
        multiply(given.q, 1e-22F);
        multiply(given.k, 1e-20F);
        which.scale = largest;
    });
}

TEST_CASE("extremes: zeros of both signs") {
    random_source random(5);
    const auto zero = [&] { return random.bits() % 2 == 0 ? 0.0F : -0.0F; };
    check_changed([&](attention_case&, const inputs& given) { given.q.fill(zero); });
    check_changed([&](attention_case&, const inputs& given) { given.k.fill(zero); });
    check_changed([&](attention_case&, const inputs& given) { given.v.fill(zero); });
    check_changed([](attention_case&, const inputs& given) { given.v.fill([] { return -0.0F; }); });
}

TEST_CASE("extremes: huge scores in some rows, ordinary ones in their neighbours") {
    // Rows are computed side by side, and must not be treated like each other.
    random_source random(77);
    for (const count rows_alike : {1, 4, 8, 16}) {
        for (const float huge : {1e5F, 1e7F, 1e9F, 1e38F}) {
            check_changed([=, &random](attention_case& which, const inputs& given) {
                for (count t = 0; t < which.queries; ++t) {
                    if (random.bits() % 2 == 0 || t % rows_alike != 0) { continue; }
                    for (count i = 0; i < rows_alike * which.key_dim; ++i) {
                        const count row = t + i / which.key_dim;
                        if (row < which.queries) { given.q.at(0, 0, row, i % which.key_dim) *= huge; }
                    }
                }
            });
        }
    }
}

TEST_CASE("extremes: one key dominates") {
    for (const count key : {0, 1, 126, 127, 128, 130, 255, 256, 289, 399}) {
        for (const float size : {20.0F, 200.0F, -200.0F, 1e4F}) {
            check_changed([=](attention_case&, const inputs& given) {
                given.q.fill([] { return 1.0F; });
                for (count i = 0; i < given.k.view().head_dim(); ++i) { plant(given.k, key, i, size); }
            });
        }
    }
}

TEST_CASE("extremes: scores that rise, or fall, with the key, so that old sums underflow") {
    for (const float slope : {0.1F, 1.0F, 40.0F, 200.0F, -0.1F, -1.0F, -40.0F, -200.0F}) {
        check_changed([=](attention_case& which, const inputs& given) {
            which.scale = 1.0F;
            given.q.fill([] { return 1.0F; });
            given.k.fill([] { return 0.0F; });
            for (count key = 0; key < which.keys; ++key) {
                plant(given.k, key, 0, slope * static_cast<float>(key) + 0.37F);
            }
        });
    }
}

TEST_CASE("extremes: weights at the edge of underflow, within a chunk and between chunks") {
    // With this scale, a score is the base-2 logarithm of its weight. Key 0 has weight 1 and value 0, so
    // that the tiny weights of the others are seen: each has a value column of its own.
    constexpr count others = 60;
    for (const count stride : {1, 5}) {  // keys between two others: with 5, three chunks
        attention_case which{.queries = 30, .keys = 1 + others * stride, .key_dim = 1, .value_dim = others};
        which.scale = 0.69314718F;
        const inputs given = make_inputs(which);
        given.q.fill([] { return 1.0F; });
        given.k.fill([] { return -infinity; });
        given.v.fill([] { return 0.0F; });
        given.k.at(0, 0, 0, 0) = 0.0F;
        for (count j = 0; j < others; ++j) {
            const count key = 1 + (others - 1 - j) * stride;
            given.k.at(0, 0, key, 0) = -122.0F - 0.125F * static_cast<float>(j);
            given.v.at(0, 0, key, j) = 1.0F;
        }
        check_exact(which, given, all_settings());
        const results got = tiled(which, given);
        for (count j = 0; j < others; ++j) {
            const float score = -122.0F - 0.125F * static_cast<float>(j);
            INFO("stride ", stride, ", score ", score);
            // Within a chunk, rounded scores below -125 have no weight; what is far above has.
            const float weight = got.out.at(0, 0, 3, j);
            if (score > -125.5F) { CHECK(std::abs(weight - std::exp2(score)) < 1e-6F * std::exp2(score)); }
            if (score < -127.0F) { CHECK(bits_of(weight) == 0U); }
            if (stride == 1 && score < -125.5F) { CHECK(bits_of(weight) == 0U); }
        }
    }
}

TEST_CASE("extremes: all keys are equal") {
    check_changed([](attention_case&, const inputs& given) { given.k.fill([] { return 0.3F; }); });
}

TEST_CASE("extremes: a special value at one place") {
    constexpr std::array places = {0, 1, 16, 63, 127, 128, 150, 255, 256, 289};
    const std::array values = {
        infinity, -infinity, quiet_nan, largest, from_bits(0xffc12345U), from_bits(0x7f800001U)};
    for (std::size_t number = 0; number < values.size(); ++number) {
        const float value = values[number];
        for (std::size_t index = number % 2; index < places.size(); index += number < 3 ? 1 : 2) {
            const count token = places[index];
            const count place = token;  // a different element each time
            check_changed([=](attention_case&, const inputs& given) { plant(given.k, token, place, value); });
            check_changed([=](attention_case&, const inputs& given) { plant(given.v, token, place, value); });
            if (token > 150) { continue; }
            check_changed([=](attention_case&, const inputs& given) { plant(given.q, token, place, value); });
        }
    }
}

TEST_CASE("extremes: scores that are all -inf, or +inf, or both") {
    for (const float value : {infinity, -infinity}) {
        for (const float scale : {1.0F, -1.0F, 0.0F}) {
            check_changed([=](attention_case& which, const inputs& given) {
                which.scale = scale;
                given.k.fill([=] { return value; });
                given.q.fill([] { return 1.0F; });
            });
        }
        // Both signs meet within a dot product.
        check_changed([=](attention_case&, const inputs& given) { given.k.fill([=] { return value; }); });
        // A whole chunk is -inf, and the next is not.
        check_changed([=](attention_case& which, const inputs& given) {
            given.q.fill([] { return 1.0F; });
            for (count key = 0; key < 128; ++key) { plant(given.k, key, 0, value); }
            for (count key = 256; key < which.keys; ++key) { plant(given.k, key, 0, -value); }
        });
    }
}

TEST_CASE("extremes: random mixtures of special and ordinary values") {
    constexpr std::array specials = {0.0F,    -0.0F,    infinity, -infinity, quiet_nan,
                                     largest, -largest, smallest, -smallest, smallest_normal,
                                     1.0F,    1e20F,    -1e20F,   1e-20F};
    random_source random(99);
    const count rounds = by_effort(5, 12, 40);
    for (count round = 0; round < rounds; ++round) {
        // Few special values leave some rows ordinary, many leave none.
        const std::uint64_t rarity =
            std::array<std::uint64_t, 4>{3, 50, 1000, 10000}[static_cast<std::size_t>(round % 4)];
        const auto value = [&] {
            if (random.bits() % rarity != 0) { return random.normal(); }
            return specials[static_cast<std::size_t>(random.bits() % specials.size())];
        };
        check_changed([&](attention_case& which, const inputs& given) {
            given.q.fill(value);
            given.k.fill(value);
            given.v.fill(value);
            if (round % 3 == 0) { which.scale = value(); }
            if (which.scale && (*which.scale != *which.scale || *which.scale - *which.scale != 0.0F)) {
                which.scale = -1.5F;
            }
        });
    }
}

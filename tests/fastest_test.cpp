// arithmetic::fastest: the scores are those of the instruction as it is documented, on any bits; results have
// the bits of the naive formulation, and of a second one that is written out here; and they do not depend on
// how a call is made.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tilewise/attention.hpp>
#include <tilewise/reference.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "mask_cases.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::arithmetic;
using tilewise::axis;
using tilewise::element_type;

// The instruction, by its documentation.

#if defined(__x86_64__)
/// VDPBF16PS: the products of the higher elements of both pairs, then those of the lower ones, are added by
/// fused multiply-adds that round to nearest, take subnormal numbers for zeros and give none.
float without_subnormals(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}
float add_pair(float sum, const std::array<float, 2>& a, const std::array<float, 2>& b) {
    sum = without_subnormals(sum);
    for (const std::size_t n : {std::size_t{1}, std::size_t{0}}) {
        sum = without_subnormals(std::fma(without_subnormals(a[n]), without_subnormals(b[n]), sum));
    }
    return sum;
}
#else
/// BFDOT, where FPCR.EBF is 0: the products are added to each other and then to the sum; each step rounds to
/// odd, and takes subnormal numbers for zeros and gives none. In integers of 300 bits this would be exact;
/// here the part of a sum that the larger number cannot hold is kept as a sign.
float without_subnormals(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}
/// value + rest, |rest| less than the last bit of a number of 53 bits, rounded to odd.
float to_odd(double value, double rest) {
    if (!std::isfinite(value) || value == 0.0) { return static_cast<float>(value); }
    int exponent = 0;
    const double scaled = std::ldexp(std::frexp(std::fabs(value), &exponent), 24);  // below 2^24
    double whole = std::floor(scaled);
    const bool is_less = (rest < 0.0) == (value > 0.0) && rest != 0.0;
    bool is_inexact = whole != scaled || rest != 0.0;
    if (is_less && whole == scaled) { whole -= whole == 0x1p23 ? 0.5 : 1.0; }
    if (whole != std::floor(whole)) {  // a binade lower, where numbers are denser
        whole *= 2.0;
        --exponent;
    }
    if (is_inexact && std::fmod(whole, 2.0) == 0.0) { whole += 1.0; }
    return without_subnormals(static_cast<float>(std::copysign(std::ldexp(whole, exponent - 24), value)));
}
float add_pair(float sum, const std::array<float, 2>& a, const std::array<float, 2>& b) {
    const auto product = [&](std::size_t n) {
        return to_odd(
            static_cast<double>(without_subnormals(a[n])) * static_cast<double>(without_subnormals(b[n])),
            0.0);
    };
    const auto add = [](float one, float other) {
        const auto x = static_cast<double>(std::fabs(one) < std::fabs(other) ? other : one);
        const auto y = static_cast<double>(std::fabs(one) < std::fabs(other) ? one : other);
        const double total = x + y;
        return to_odd(total, std::isfinite(total) ? y - (total - x) : 0.0);
    };
    return add(without_subnormals(sum), add(product(0), product(1)));
}
#endif

/// One row of attention under masks, with no modifier but the scale: chunks of 128 key positions, pairs of
/// even and odd positions.
struct plain_row {
    std::vector<float> out;
    float m = -infinity;
    float l = 0.0F;
};

float dot(const inputs& given, count b, count h, count kv_head, count i, count j, count dim) {
    float s = 0.0F;
    for (count x = 0; x < dim; x += 2) {
        std::array<float, 2> k = {};
        std::array<float, 2> q = {};
        for (count n = 0; n < std::min<count>(2, dim - x); ++n) {
            k[static_cast<std::size_t>(n)] = given.k.get(b, kv_head, j, x + n);
            q[static_cast<std::size_t>(n)] = given.q.get(b, h, i, x + n);
        }
        s = add_pair(s, k, q);
    }
    return s;
}

/// 2^(t c - m), rounded to bf16.
float weight_of(float t, float c, float m) {
    constexpr float coefficients[] = {0x1.409104p-7F, 0x1.ca9008p-5F, 0x1.ebf1b4p-3F, 0x1.62dfcap-1F, 1.0F};
    const auto r = static_cast<float>(std::nearbyint(static_cast<double>(t) * static_cast<double>(c)));
    if (r - m < -125.0F) { return 0.0F; }
    const float f = std::fma(t, c, -r);
    float p = 0.0F;
    for (const float coefficient : coefficients) { p = std::fma(p, f, coefficient); }
    return static_cast<float>(tilewise::bfloat16(std::ldexp(p, static_cast<int>(r - m))));
}

plain_row compute_row(const mask_case& of, const inputs& given, count b, count h, count i) {
    const attention_case& sizes = of.sizes;
    const count kv_head = h / (sizes.heads / sizes.kv_heads);
    const float c = static_cast<float>(static_cast<double>(*of.how.scale) * 0x1.71547652b82fep+0);
    plain_row row{std::vector<float>(static_cast<std::size_t>(sizes.value_dim))};
    const count end = of.how.key_position + sizes.keys;
    for (count start = of.how.key_position / 128 * 128; start < end; start += 128) {
        std::array<float, 128> scores;
        scores.fill(-infinity);
        for (std::size_t n = 0; n < 128; ++n) {
            const count j = start + static_cast<count>(n) - of.how.key_position;
            if (j >= 0 && sees(of, b, h, i, j)) {
                scores[n] = dot(given, b, h, kv_head, i, j, sizes.key_dim);
            }
        }
        const float m = std::ceil(*std::max_element(scores.begin(), scores.end()) * c);
        if (m == -infinity) { continue; }
        float l = 0.0F;
        std::vector<float> o(row.out.size());
        for (std::size_t n = 0; n < 128; n += 2) {
            std::array<float, 2> p = {};
            for (std::size_t half = 0; half < 2; ++half) {
                if (scores[n + half] != -infinity) { p[half] = weight_of(scores[n + half], c, m); }
            }
            l = add_pair(l, p, {1.0F, 1.0F});
            for (std::size_t x = 0; x < o.size(); ++x) {
                std::array<float, 2> v = {};
                for (std::size_t half = 0; half < 2; ++half) {
                    if (scores[n + half] == -infinity) { continue; }
                    const count j = start + static_cast<count>(n + half) - of.how.key_position;
                    v[half] = given.v.get(b, kv_head, j, static_cast<count>(x));
                }
                o[x] = add_pair(o[x], p, v);
            }
        }
        const float larger = std::max(row.m, m);
        const float keep = std::exp2(row.m - larger);
        const float take = std::exp2(m - larger);
        row.l = std::fma(row.l, keep, l * take);
        for (std::size_t x = 0; x < o.size(); ++x) { row.out[x] = std::fma(row.out[x], keep, o[x] * take); }
        row.m = larger;
    }
    for (float& value : row.out) { value = row.l == 0.0F ? 0.0F : value / row.l + 0.0F; }
    return row;
}

attention_case random_sizes(random_source& random) {
    attention_case sizes;
    sizes.batch = random.between(1, 2);
    sizes.kv_heads = random.between(1, 3);
    sizes.heads = sizes.kv_heads * random.between(1, 5);
    sizes.queries = random.between(1, 3) == 1 ? random.between(1, 300) : random.between(1, 8);
    sizes.keys = random.between(1, 400);
    sizes.key_dim = random.between(1, 2) == 1 ? random.between(1, 150) : 16 * random.between(1, 8);
    sizes.value_dim = random.between(1, 2) == 1 ? random.between(1, 150) : 16 * random.between(1, 8);
    sizes.causal = all_causal[static_cast<std::size_t>(random.between(0, 2))];
    sizes.types = bf16_types;
    sizes.arithmetic = arithmetic::fastest;
    sizes.seed = random.bits();
    return sizes;
}

/// Bits of one of the kinds that matter: any, near 1, and so small that products are subnormal.
std::uint32_t ugly_bits(random_source& random) {
    const auto bits = static_cast<std::uint32_t>(random.bits() & 0xffffU);
    const auto exponent = [&](count first, count last) {
        return (bits & 0x807fU) | static_cast<std::uint32_t>(random.between(first, last)) << 7;
    };
    switch (random.between(0, 4)) {
        case 0:
            return bits;
        case 1:
            return exponent(0, 1);
        case 2:
            return exponent(55, 75);
        case 3:
            return exponent(250, 255);
        default:
            return exponent(120, 130);
    }
}

}  // namespace

TEST_CASE("fastest: scores are those of the documented instruction, on any bits") {
    if (!has_fastest()) { return; }
    constexpr count dim = 8;
    const attention_case sizes{
        .queries = 64, .keys = 1, .key_dim = dim, .value_dim = 1, .scale = 1.0F, .types = bf16_types};
    const inputs given = make_inputs(sizes);
    random_source random(1);
    count wrong = 0;
    for (count round = 0; round < by_effort(200, 200, 4000); ++round) {
        const count queries = round % 2 == 0 ? 64 : 3;
        for (count x = 0; x < dim; ++x) {
            set_bits(given.k.view(), 0, 0, 0, x, ugly_bits(random));
            for (count i = 0; i < queries; ++i) { set_bits(given.q.view(), 0, 0, i, x, ugly_bits(random)); }
        }
        const owned_tensor out({1, 1, queries, 1});
        const owned_tensor largest({1, 1, queries, 1});
        tilewise::attention(
            given.q.view().slice(axis::tokens, 0, queries), given.k.view(), given.v.view(), out.view(),
            {.scale = 1.0F, .extra = {.row_maximum = largest.view()}, .arithmetic = arithmetic::fastest});
        for (count i = 0; i < queries; ++i) {
            const float want = dot(given, 0, 0, 0, i, 0, dim) + 0.0F;
            const float got = largest.at(0, 0, i, 0);
            // A base-2 exponent of infinity makes weights, and so the row's results, NaN.
            const bool is_nan = std::isnan(want) || want * 0x1.715476p+0F == infinity;
            wrong += is_nan ? !std::isnan(got) : bits_of(got) != bits_of(want);
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("fastest: rows are those of the formula written out") {
    if (!has_fastest()) { return; }
    random_source random(2);
    for (count number = 0; number < by_effort(10, 30, 150); ++number) {
        attention_case sizes = random_sizes(random);
        sizes.queries = random.between(1, 40);
        mask_case made = random_masks(random, sizes);
        tilewise::options& how = made.how;
        how.bias = {};
        how.alibi_slopes = {};
        how.sinks = {};
        how.soft_cap = 0.0F;
        how.score_function = {};
        how.scale = 0.1F;
        const inputs given = make_inputs(sizes);
        const all_results got = attend(sizes, given, how, {});
        INFO(show(sizes), ", ", made.names);
        count wrong = 0;
        for (count b = 0; b < sizes.batch; ++b) {
            for (count h = 0; h < sizes.heads; ++h) {
                for (count i = 0; i < sizes.queries; ++i) {
                    const plain_row want = compute_row(made, given, b, h, i);
                    for (count x = 0; x < sizes.value_dim; ++x) {
                        wrong +=
                            bits_of(got.out.at(b, h, i, x)) != bits_of(want.out[static_cast<std::size_t>(x)]);
                    }
                }
            }
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("fastest: random shapes and layouts have the naive formulation's bits, on any threads") {
    random_source random(3);
    for (count number = 0; number < by_effort(40, 120, 400); ++number) {
        attention_case sizes = random_sizes(random);
        if (sizes.work() > 30'000'000) { sizes.batch = sizes.kv_heads = sizes.heads = 1; }
        for (std::size_t tensor = 0; tensor < 3; ++tensor) {
            sizes.layouts[tensor] = random.bits() % all_layouts().size();
        }
        sizes.layouts[3] = random.bits() % output_layouts;
        sizes.types[3] = float_types[random.bits() % 3];
        if (random.bits() % 2 == 0) { sizes.scale = random.normal(); }
        check_exact(sizes, make_inputs(sizes), static_cast<std::size_t>(number));
    }
}

TEST_CASE("fastest: long rows, in any number of parts") {
    for (const count keys : {511, 3000}) {
        for (const count queries : {1, 2, 7}) {
            for (const count heads : {1, 4, 12}) {
                const attention_case which{.heads = heads,
                                           .kv_heads = heads == 12 ? 2 : 1,
                                           .queries = queries,
                                           .keys = by_effort(511, 511, keys),
                                           .key_dim = 72,
                                           .value_dim = 64,
                                           .causal = tilewise::causal::bottom_right,
                                           .types = bf16_types,
                                           .arithmetic = arithmetic::fastest};
                check_exact(which, make_inputs(which), all_settings());
            }
        }
    }
}

TEST_CASE("fastest: prefill, one token at a time, and chunks of any size") {
    const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
    const std::vector<float> sinks = {1.0F, -2.0F, 0.5F, -infinity};
    attention_case sizes{.batch = 2, .heads = 4, .kv_heads = 2, .key_dim = 32, .value_dim = 64};
    sizes.queries = sizes.keys = by_effort(150, 150, 300);
    sizes.types = bf16_types;
    const inputs given = make_inputs(sizes);
    std::vector<tilewise::options> all(4);
    all[1].window_left = 50;
    all[1].prefix = 3;
    all[2].soft_cap = 5.0F;
    all[2].alibi_slopes = slopes;
    all[3].attention_chunk = 77;
    all[3].sinks = sinks;
    for (tilewise::options& how : all) {
        how.causal = tilewise::causal::bottom_right;
        how.arithmetic = arithmetic::fastest;
        const auto attend_to = [&](count first, count queries, int threads, const results& into) {
            const count keys = std::min(sizes.keys, std::max(first + queries, how.prefix));
            tilewise::options step = how;
            step.query_position = first;
            step.threads = threads;
            step.lse = into.lse.view().slice(axis::tokens, first, queries);
            tilewise::attention(given.q.view().slice(axis::tokens, first, queries),
                                given.k.view().slice(axis::tokens, 0, keys),
                                given.v.view().slice(axis::tokens, 0, keys),
                                into.out.view().slice(axis::tokens, first, queries), step);
        };
        const results want = make_results(sizes);
        attend_to(0, sizes.queries, 1, want);
        for (const count chunk : {1, 7, 100, 129}) {
            const results got = make_results(sizes);
            for (count first = 0; first < sizes.queries; first += chunk) {
                attend_to(first, std::min(chunk, sizes.queries - first), static_cast<int>(chunk % 3 + 1),
                          got);
            }
            CHECK(first_difference(got, want) == "");
        }
    }
}

TEST_CASE("fastest: what it is not for is exact") {
    random_source random(4);
    for (std::size_t mix = 0; mix < 27; ++mix) {
        attention_case sizes{.heads = 2, .queries = 20, .keys = 150};
        sizes.types = {float_types[mix % 3], float_types[mix / 3 % 3], float_types[mix / 9],
                       element_type::f32};
        const inputs given = make_inputs(sizes);
        const results exact = tiled(sizes, given);
        sizes.arithmetic = arithmetic::fastest;
        const results fastest = tiled(sizes, given);
        const bool is_exact = first_difference(fastest.out.view(), exact.out.view()).empty();
        const arithmetic planned =
            tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), fastest.out.view(),
                                     {.arithmetic = arithmetic::fastest})
                .arithmetic;
        INFO(show(sizes));
        const bool is_for_it =
            has_fastest() && std::equal(sizes.types.begin(), sizes.types.end(), bf16_types.begin());
        CHECK(is_exact == !is_for_it);
        CHECK((planned == arithmetic::exact) == is_exact);
    }
}

}  // namespace tilewise_tests

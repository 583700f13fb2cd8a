// merge: attention over parts of the keys, combined, is attention over all keys, within a bound.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tilewise/merge.hpp>
#include <vector>

#include "cases.hpp"
#include "mask_cases.hpp"
#include "refusals.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::partial_result;

std::vector<partial_result> views_of(const std::vector<results>& parts) {
    std::vector<partial_result> views;
    for (const results& part : parts) { views.push_back({part.out.view(), part.lse.view()}); }
    return views;
}

results merged(const attention_case& sizes, const std::vector<results>& parts) {
    results made = make_results(sizes);
    tilewise::merge(views_of(parts), made.out.view(), made.lse.view());
    return made;
}

/// Attention over keys first .. first + keys - 1, at their places.
results attend_to_part(const attention_case& sizes, const inputs& given, tilewise::options how, count first,
                       count keys) {
    results made = make_results(sizes, all_layouts()[sizes.layouts[3]]);
    how.lse = made.lse.view();
    how.query_position = how.query_position.value_or(sizes.keys - sizes.queries);
    how.key_position = first;
    const auto part = [&](const owned_tensor& of) {
        return tilewise::const_tensor(of.view()).slice(tilewise::axis::tokens, first, keys);
    };
    tilewise::attention(given.q.view(), part(given.k), part(given.v), made.out.view(), how);
    return made;
}

/// The largest sum of |q k| times the scale in a row, at least 1: what the rounding of scores, which is a
/// relative error of weights, is proportional to.
double size_of_scores(const mask_case& of, const inputs& given, const extents& row) {
    const count kv_head = row[1] / (of.sizes.heads / of.sizes.kv_heads);
    double largest = 0;
    for (count j = 0; j < of.sizes.keys; ++j) {
        double sum = 0;
        for (count i = 0; i < of.sizes.key_dim; ++i) {
            sum += std::fabs(static_cast<double>(given.q.get(row[0], row[1], row[2], i)) *
                             static_cast<double>(given.k.get(row[0], kv_head, j, i)));
        }
        largest = std::fmax(largest, sum);
    }
    const double scale = of.how.scale.has_value() ? std::fabs(static_cast<double>(*of.how.scale))
                                                  : 1 / std::sqrt(static_cast<double>(of.sizes.key_dim));
    return std::fmax(1.0, largest * scale);
}

/// A part with one row of one value.
struct row_part {
    float lse;
    float out;
};

struct row_value {
    std::uint32_t out;
    std::uint32_t lse;
};
row_value merge_rows(const std::vector<row_part>& parts) {
    std::vector<partial_result> views;
    for (const row_part& part : parts) {
        views.push_back({tilewise::row_values(&part.out, 1, 1, 1), tilewise::row_values(&part.lse, 1, 1, 1)});
    }
    float out = 77;
    float lse = 77;
    tilewise::merge(views, tilewise::row_values(&out, 1, 1, 1), tilewise::row_values(&lse, 1, 1, 1));
    return {bits_of(out), bits_of(lse)};
}

}  // namespace

TEST_CASE("merge: parts of the keys make attention over all keys") {
    random_source random(71);
    for (count number = 0; number < by_effort(20, 40, 80); ++number) {
        attention_case sizes;
        sizes.batch = random.between(1, 2);
        sizes.kv_heads = random.between(1, 2);
        sizes.heads = sizes.kv_heads * random.between(1, 3);
        sizes.queries = random.between(1, 30);
        sizes.keys = random.between(1, 400);
        sizes.key_dim = sizes.value_dim = random.between(1, 40);
        sizes.seed = random.bits();
        sizes.layouts[3] = random.bits() % output_layouts;
        mask_case made;
        made.sizes = sizes;
        if (random.between(0, 1) == 0) { made.how.causal = tilewise::causal::bottom_right; }
        if (random.between(0, 2) == 0) { made.how.window_left = random.between(0, 100); }
        if (random.between(0, 2) == 0) { made.how.scale = 5 * random.normal(); }
        const inputs given = make_inputs(sizes);
        const float64_results want = model(made, given);
        std::vector<results> parts;
        for (count first = 0; first < sizes.keys;) {
            const count keys = std::min(random.between(0, 150), sizes.keys - first);
            parts.push_back(attend_to_part(sizes, given, made.how, first, keys));
            first += keys;
        }
        const results got = merged(sizes, parts);
        INFO(show(sizes));
        double worst = 0;
        std::size_t row = 0;
        for (count b = 0; b < sizes.batch; ++b) {
            for (count h = 0; h < sizes.heads; ++h) {
                for (count t = 0; t < sizes.queries; ++t, ++row) {
                    const double tolerance = 0x1p-24 * 16 * size_of_scores(made, given, {b, h, t, 0});
                    const auto lse = static_cast<double>(got.lse.at(b, h, t, 0));
                    if (lse != want.lse[row]) {
                        worst = std::fmax(worst, std::fabs(lse - want.lse[row]) / tolerance);
                    }
                    for (count x = 0; x < sizes.value_dim; ++x) {
                        const double exact = want.out[row * static_cast<std::size_t>(sizes.value_dim) +
                                                      static_cast<std::size_t>(x)];
                        const auto value = static_cast<double>(got.out.at(b, h, t, x));
                        worst = std::fmax(worst, std::fabs(value - exact) / (4 * tolerance));
                    }
                }
            }
        }
        CHECK(worst <= 1.0);
    }
}

TEST_CASE("merge: exact where exponentials are") {
    // Two equal parts, and one whose share is nothing beside them.
    const row_value two = merge_rows({{1.0F, 3.0F}, {1.0F, 5.0F}, {-900.0F, 7.0F}});
    CHECK(two.out == bits_of(4.0F));
    CHECK(two.lse == bits_of(1.69314718F));
}

TEST_CASE("merge: against long double, for any distance") {
    random_source random(72);
    for (int number = 0; number < 3000; ++number) {
        std::vector<row_part> parts;
        long double sum = 0;
        long double out = 0;
        const float spread = number % 3 == 0 ? 0.1F : number % 3 == 1 ? 10.0F : 90.0F;
        for (count n = random.between(1, 6); n > 0; --n) {
            parts.push_back({spread * random.normal(), random.normal()});
            const long double share = std::exp(static_cast<long double>(parts.back().lse));
            sum += share;
            out += share * static_cast<long double>(parts.back().out);
        }
        const row_value got = merge_rows(parts);
        const auto error = [](long double exact, std::uint32_t bits) {
            const auto rounded = static_cast<float>(exact);
            return std::fabs(from_bits(bits) - rounded) / std::max(std::fabs(rounded), 1e-3F);
        };
        CHECK(error(out / sum, got.out) <= 0x1p-23F);
        CHECK(error(std::log(sum), got.lse) <= 0x1p-23F);
    }
}

TEST_CASE("merge: rows that are empty, NaN or infinite") {
    const std::uint32_t nan = canonical_nan_bits;
    // Parts without keys contribute nothing, whatever is in their out.
    CHECK(merge_rows({{-infinity, quiet_nan}, {-2.5F, 0.7F}}).out == bits_of(0.7F));
    CHECK(merge_rows({{-2.5F, 0.7F}, {-infinity, infinity}}).lse == bits_of(-2.5F));
    CHECK(merge_rows({{-infinity, quiet_nan}, {-infinity, 1.0F}}).out == bits_of(0.0F));
    CHECK(merge_rows({{-infinity, quiet_nan}, {-infinity, 1.0F}}).lse == bits_of(-infinity));
    CHECK(merge_rows({}).out == bits_of(0.0F));
    CHECK(merge_rows({}).lse == bits_of(-infinity));
    for (const float bad : {quiet_nan, -quiet_nan, infinity}) {
        for (const bool first : {false, true}) {
            const row_value got =
                first ? merge_rows({{bad, 1.0F}, {0.5F, 1.0F}}) : merge_rows({{0.5F, 1.0F}, {bad, 1.0F}});
            CHECK(got.out == nan);
            CHECK(got.lse == nan);
        }
    }
    const row_value one_nan = merge_rows({{0.5F, -quiet_nan}, {0.5F, 1.0F}});
    CHECK(one_nan.out == nan);
    CHECK(one_nan.lse == bits_of(1.19314718F));
    CHECK(merge_rows({{0.5F, infinity}, {0.5F, 1.0F}}).out == bits_of(infinity));
    CHECK(merge_rows({{0.5F, -0.0F}}).out == bits_of(0.0F));
}

TEST_CASE("merge: one part stays as it is, in any type and layout; in place, too") {
    for (const tilewise::element_type type : float_types) {
        for (std::size_t where = 0; where < output_layouts; ++where) {
            attention_case sizes{.batch = 2, .heads = 3, .queries = 4, .value_dim = 5};
            sizes.types[3] = type;
            std::vector<results> parts;
            for (std::uint64_t seed = 0; seed < 2; ++seed) {
                parts.push_back(make_results(sizes, all_layouts()[where]));
                parts.back().out.fill_normal(seed);
                parts.back().lse.fill_normal(seed + 7, 3.0F);
            }
            const results both = merged(sizes, parts);
            const std::vector<partial_result> views = views_of(parts);
            results one = make_results(sizes, all_layouts()[where]);
            tilewise::merge(std::span(views).first(1), one.out.view(), one.lse.view());
            CHECK(first_difference(one, parts[0]) == "");
            CHECK(one.out.damage_to_gaps() == "");
            CHECK(one.lse.damage_to_gaps() == "");
            tilewise::merge(views, parts[1].out.view(), parts[1].lse.view());
            CHECK(first_difference(parts[1], both) == "");
        }
    }
}

TEST_CASE("merge: wrong arguments are refused by name, and nothing is written") {
    const attention_case sizes{.batch = 2, .heads = 3, .queries = 4, .value_dim = 5};
    const results good = make_results(sizes);
    const results other = make_results(sizes);
    const results into = make_results(sizes);
    const char* const names[] = {"batch", "heads", "tokens", "head_dim"};
    const auto merge = [&](const partial_result& part, const tilewise::tensor& out,
                           const tilewise::tensor& lse) {
        const partial_result parts[] = {{good.out.view(), good.lse.view()}, part};
        tilewise::merge(parts, out, lse);
    };
    const partial_result part{other.out.view(), other.lse.view()};
    for (std::size_t a = 0; a < 4; ++a) {
        partial_result changed = part;
        changed.out.extents[a] -= 1;
        check_refusal([&] { merge(changed, into.out.view(), {}); }, {"parts[1].out: ", names[a]});
        changed = part;
        changed.lse.extents[a] += 1;
        check_refusal([&] { merge(changed, into.out.view(), {}); }, {"parts[1].lse: ", names[a]});
        tilewise::tensor lse = into.lse.view();
        lse.extents[a] += 1;
        check_refusal([&] { merge(part, into.out.view(), lse); }, {"lse: ", names[a]});
    }
    partial_result changed = part;
    changed.out.data = nullptr;
    check_refusal([&] { merge(changed, into.out.view(), {}); }, {"parts[1].out: null data"});
    changed = part;
    changed.lse.type = tilewise::element_type::f16;
    check_refusal([&] { merge(changed, into.out.view(), {}); }, {"parts[1].lse: element type f16"});
    check_refusal([&] { merge(part, into.lse.view(), into.lse.view()); }, {"lse: its memory overlaps"});
    check_refusal([&] { merge(part, into.out.view(), other.lse.view().slice(tilewise::axis::batch, 0, 1)); },
                  {"lse: batch"});
    tilewise::tensor shifted = other.out.view();
    shifted.extents[2] = 2;
    shifted.strides[2] *= 2;
    partial_result fewer{tilewise::const_tensor(good.out.view()).slice(tilewise::axis::tokens, 0, 2),
                         tilewise::const_tensor(good.lse.view()).slice(tilewise::axis::tokens, 0, 2)};
    const partial_result overlapping[] = {fewer,
                                          {other.out.view().slice(tilewise::axis::tokens, 0, 2), fewer.lse}};
    check_refusal([&] { tilewise::merge(overlapping, shifted); },
                  {"out: its memory overlaps that of parts[1].out"});
    tilewise::tensor flat = into.out.view();
    flat.strides[1] = 0;
    check_refusal([&] { merge(part, flat, {}); }, {"out: heads has stride 0"});
    CHECK(into.out.damage() == "");
    CHECK(into.lse.damage() == "");
}

}  // namespace tilewise_tests

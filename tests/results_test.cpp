// Results besides the output: packed sequences, padding, threads, layouts, and sizes of nothing. Their bits
// in ordinary calls are compared with the oracle's in masks_test.cpp.

#include <doctest/doctest.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tilewise/attention.hpp>
#include <tilewise/reference.hpp>
#include <utility>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::axis;
using tilewise::causal;
using tilewise::tensor;

attention_case sizes_of(count batch, count queries, count keys, count heads = 4, count kv_heads = 2) {
    return {.batch = batch,
            .heads = heads,
            .kv_heads = kv_heads,
            .queries = queries,
            .keys = keys,
            .key_dim = 16,
            .value_dim = 8};
}

bool is_zero(const tensor& part) {
    bool zero = true;
    for (count b = 0; b < part.batch(); ++b) {
        for (count h = 0; h < part.heads(); ++h) {
            for (count t = 0; t < part.tokens(); ++t) {
                for (count i = 0; i < part.head_dim(); ++i) {
                    zero = zero && bits_of(*element(part, b, h, t, i)) == 0;
                }
            }
        }
    }
    return zero;
}

/// A call on a part of the tokens, with the weights of the chosen rows that are in it.
all_results attend_part(const attention_case& all, const inputs& given, std::pair<count, count> queries,
                        std::pair<count, count> keys, const tilewise::options& how,
                        const std::vector<count>& chosen) {
    attention_case part = all;
    part.queries = queries.second - queries.first;
    part.keys = keys.second - keys.first;
    std::vector<count> rows;
    for (const count row : chosen) {
        if (row >= queries.first && row < queries.second) { rows.push_back(row - queries.first); }
    }
    all_results made(part, rows);
    tilewise::attention(given.q.view().slice(axis::tokens, queries.first, part.queries),
                        given.k.view().slice(axis::tokens, keys.first, part.keys),
                        given.v.view().slice(axis::tokens, keys.first, part.keys), made.out.view(),
                        made.asked_for(how));
    return made;
}

/// Checks the results of one sequence of a packed call, or of a batch entry with padding, which is at these
/// tokens of `got`; chosen row `first_row` is the first that is in it.
void check_part(const all_results& got, const all_results& want, count first_query, count first_key,
                count first_row) {
    const count queries = want.out.view().tokens();
    const count keys = want.key_weights.view().head_dim();
    const auto of_rows = [&](const owned_tensor& x) {
        return x.view().slice(axis::tokens, first_query, queries);
    };
    CHECK(first_difference(of_rows(got.out), want.out.view()) == "");
    CHECK(first_difference(of_rows(got.lse), want.lse.view()) == "");
    CHECK(first_difference(of_rows(got.row_maximum), want.row_maximum.view()) == "");
    CHECK(first_difference(of_rows(got.entropy), want.entropy.view()) == "");
    CHECK(first_difference(got.key_weights.view().slice(axis::head_dim, first_key, keys),
                           want.key_weights.view()) == "");
    const tensor weights =
        got.weights.view().slice(axis::tokens, first_row, static_cast<count>(want.rows.size()));
    CHECK(first_difference(weights.slice(axis::head_dim, 0, keys), want.weights.view()) == "");
    CHECK(is_zero(weights.slice(axis::head_dim, keys, weights.head_dim() - keys)));
}

/// Rows, keys and chosen rows before the first sequence and behind the last.
void check_untouched(const all_results& got, std::pair<count, count> queries, std::pair<count, count> keys) {
    const auto check_outside = [](const owned_tensor& x, axis along, std::pair<count, count> inside) {
        const count end = x.view().extents[static_cast<std::size_t>(along)];
        CHECK(first_written(x.view().slice(along, 0, inside.first)) == "");
        CHECK(first_written(x.view().slice(along, inside.second, end - inside.second)) == "");
    };
    for (const owned_tensor* rows : {&got.out, &got.lse, &got.row_maximum, &got.entropy}) {
        check_outside(*rows, axis::tokens, queries);
    }
    check_outside(got.key_weights, axis::head_dim, keys);
    const auto place_of = [&](count row) {
        return std::lower_bound(got.rows.begin(), got.rows.end(), row) - got.rows.begin();
    };
    check_outside(got.weights, axis::tokens, {place_of(queries.first), place_of(queries.second)});
}

struct packed_starts {
    std::vector<count> queries;
    std::vector<count> keys;
};

/// Memory for a packed call: weights have as many columns as the longest sequence has keys.
all_results packed_results(const attention_case& sizes, const packed_starts& starts,
                           const std::vector<count>& chosen) {
    count longest = 0;
    for (std::size_t s = 0; s + 1 < starts.keys.size(); ++s) {
        longest = std::max(longest, starts.keys[s + 1] - starts.keys[s]);
    }
    all_results made(sizes, chosen);
    made.weights = owned_tensor({1, sizes.heads, static_cast<count>(chosen.size()), longest});
    return made;
}

/// Compares a packed call, by both formulations, with calls for each sequence.
void check_packed(const packed_starts& starts, const std::vector<count>& key_lengths,
                  const std::vector<count>& chosen, tilewise::options how) {
    const attention_case sizes = sizes_of(1, 400, 500);
    const inputs given = make_inputs(sizes);
    tilewise::options packed = how;
    packed.query_starts = starts.queries;
    packed.key_starts = starts.keys;
    packed.key_lengths = key_lengths;
    const all_results got = packed_results(sizes, starts, chosen);
    attend(given, packed, got);
    const all_results oracle = packed_results(sizes, starts, chosen);
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), oracle.out.view(),
                                   oracle.asked_for(packed));
    CHECK(first_difference(got, oracle) == "");
    check_untouched(got, {starts.queries.front(), starts.queries.back()},
                    {starts.keys.front(), starts.keys.back()});
    for (std::size_t s = 0; s + 1 < starts.queries.size(); ++s) {
        INFO("sequence ", s);
        const count length = key_lengths.empty() ? starts.keys[s + 1] - starts.keys[s] : key_lengths[s];
        const count end = starts.keys[s] + length;
        const all_results want = attend_part(sizes, given, {starts.queries[s], starts.queries[s + 1]},
                                             {starts.keys[s], end}, how, chosen);
        check_part(got, want, starts.queries[s], starts.keys[s],
                   std::lower_bound(chosen.begin(), chosen.end(), starts.queries[s]) - chosen.begin());
        CHECK(is_zero(got.key_weights.view().slice(axis::head_dim, end, starts.keys[s + 1] - end)));
    }
}

}  // namespace

TEST_CASE("results: packed sequences are each by itself") {
    // The first has no queries, the third no keys, and both ends of the tensors belong to none.
    const packed_starts starts{{3, 3, 60, 61, 390}, {5, 25, 150, 150, 480}};
    const std::vector<count> chosen = {0, 2, 3, 4, 59, 60, 61, 200, 201, 389, 390, 399};
    const std::vector<float> sinks = {0.5F, -1.0F, 2.0F, 0.0F};
    for (const int threads : {1, 3}) {
        for (const std::size_t budget : {0U, 1U}) {
            check_packed(starts, {}, chosen,
                         {.causal = causal::bottom_right, .threads = threads, .scratch_budget = budget});
            check_packed(starts, {}, chosen,
                         {.window_left = 40, .sinks = sinks, .threads = threads, .scratch_budget = budget});
            check_packed(starts, {20, 0, 0, 201}, chosen,
                         {.causal = causal::bottom_right, .threads = threads, .scratch_budget = budget});
        }
    }
    check_packed(starts, {}, {}, {});
}

TEST_CASE("results: packed sequences without a query or a key") {
    check_packed({{7, 7, 7}, {9, 20, 31}}, {}, {0, 7, 8}, {});
    check_packed({{0, 0}, {9, 31}}, {4}, {0}, {});
    check_packed({{7, 20, 30}, {9, 9, 9}}, {}, {0, 7, 29, 31}, {});
}

TEST_CASE("results: padding has weight 0, whatever is in it") {
    const attention_case sizes = sizes_of(3, 30, 300);
    const inputs given = make_inputs(sizes);
    const std::vector<count> lengths = {129, 30, 0};
    for (count b = 0; b < 3; ++b) {
        for (count j = lengths[static_cast<std::size_t>(b)]; j < 300; ++j) {
            for (count h = 0; h < 2; ++h) {
                for (count x = 0; x < 16; ++x) { given.k.at(b, h, j, x) = quiet_nan; }
                for (count x = 0; x < 8; ++x) { given.v.at(b, h, j, x) = quiet_nan; }
            }
        }
    }
    const std::vector<count> chosen = {0, 1, 17, 29};
    for (const causal mask : all_causal) {
        const all_results got = attend(sizes, given, {.causal = mask, .key_lengths = lengths}, chosen);
        for (count b = 0; b < 3; ++b) {
            const count keys = lengths[static_cast<std::size_t>(b)];
            for (const owned_tensor* weights : {&got.key_weights, &got.weights}) {
                CHECK(is_zero(
                    weights->view().slice(axis::batch, b, 1).slice(axis::head_dim, keys, 300 - keys)));
            }
            for (count i = 0; i < 30; ++i) {
                CHECK(got.entropy.at(b, 3, i, 0) >= 0.0F);
                CHECK((got.row_maximum.at(b, 3, i, 0) == -infinity) == (got.lse.at(b, 3, i, 0) == -infinity));
            }
        }
    }
}

TEST_CASE("results: threads and scratch change no bit") {
    attention_case sizes = sizes_of(1, by_effort(150, 400, 1000), by_effort(200, 300, 700), 6, 2);
    sizes.value_dim = 24;
    const inputs given = make_inputs(sizes);
    const std::vector<count> chosen = every(13, sizes.queries);
    for (const causal mask : {causal::bottom_right, causal::top_left}) {
        const all_results want(sizes, chosen);
        tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(),
                                       want.asked_for({.causal = mask}));
        for (const setting& how : all_settings()) {
            INFO("threads ", how.threads, ", scratch budget ", how.scratch_budget);
            const all_results got = attend(
                sizes, given, {.causal = mask, .threads = how.threads, .scratch_budget = how.scratch_budget},
                chosen);
            CHECK(first_difference(got, want) == "");
        }
    }
}

TEST_CASE("results: each asked for by itself is what it is among all") {
    const attention_case sizes = sizes_of(2, 150, 300);
    const inputs given = make_inputs(sizes);
    const std::vector<count> chosen = {5, 6, 149};
    const tilewise::options how{.causal = causal::bottom_right};
    const all_results want = attend(sizes, given, how, chosen);
    for (std::size_t n = 1; n < want.parts().size(); ++n) {
        all_results got(sizes, chosen);
        tilewise::options one = got.asked_for(how);
        tensor* const views[] = {
            nullptr,           &one.lse, &one.extra.row_maximum, &one.extra.entropy, &one.extra.key_weights,
            &one.extra.weights};
        for (std::size_t other = 1; other < 6; ++other) {
            if (other != n) { views[other]->data = nullptr; }
        }
        if (one.extra.weights.data == nullptr) { one.extra.weight_rows = {}; }
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), one);
        for (std::size_t part = 0; part < 6; ++part) {
            INFO(want.parts()[part].name, ", asked for ", want.parts()[n].name);
            const owned_tensor& of = *got.parts()[part].tensor;
            CHECK((part == 0 || part == n ? first_difference(of.view(), want.parts()[part].tensor->view())
                                          : of.damage()) == "");
        }
    }
}

TEST_CASE("results: in any layout, and nothing beside") {
    const attention_case sizes = sizes_of(2, 50, 140);
    const inputs given = make_inputs(sizes);
    const std::vector<count> chosen = {0, 7, 8, 49};
    const tilewise::options how{.causal = causal::bottom_right, .window_left = 60};
    const all_results want = attend(sizes, given, how, chosen);
    for (const layout& where : all_layouts().first(output_layouts)) {
        INFO(where.name);
        const all_results got(sizes, chosen, where);
        attend(given, how, got);
        CHECK(first_difference(got, want) == "");
        CHECK(damage_to_gaps(got) == "");
    }
}

TEST_CASE("results: no queries, no keys, no chosen rows, no heads") {
    for (const layout& where : all_layouts().first(output_layouts)) {
        INFO(where.name);
        const auto results_of = [&](const attention_case& sizes, const std::vector<count>& chosen) {
            all_results got(sizes, chosen, where);
            attend(make_inputs(sizes), {.causal = causal::bottom_right}, got);
            CHECK(damage_to_gaps(got) == "");
            return got;
        };
        const all_results no_queries = results_of(sizes_of(2, 0, 140), {});
        CHECK(is_zero(no_queries.key_weights.view()));

        const all_results no_keys = results_of(sizes_of(2, 20, 0), {3, 4});
        CHECK(is_zero(no_keys.out.view()));
        CHECK(is_zero(no_keys.entropy.view()));
        CHECK(no_keys.row_maximum.at(1, 3, 19, 0) == -infinity);
        CHECK(no_keys.lse.at(1, 3, 19, 0) == -infinity);

        const all_results no_rows = results_of(sizes_of(2, 20, 140), {});
        CHECK(no_rows.weights.damage() == "");
        CHECK(no_rows.key_weights.at(1, 3, 0, 139) > 0.0F);

        CHECK(damage(results_of(sizes_of(2, 20, 140, 0, 0), {1})) == "");
        CHECK(damage(results_of(sizes_of(0, 20, 140), {1})) == "");
    }
}

}  // namespace tilewise_tests

// What went wrong with masks elsewhere, as public reports tell, and what follows from the descriptions: each
// as a test that needs no reference.

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <tilewise/reference.hpp>
#include <vector>

#include "cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::causal;
using tilewise::const_tensor;
using tilewise::element_type;

results attend(const attention_case& sizes, const inputs& given, tilewise::options how) {
    const layout& where = dense();
    results got = make_results(sizes, where);
    how.lse = got.lse.view();
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
    return got;
}

void check_same(const results& got, const results& want) { CHECK(first_difference(got, want) == ""); }

bool is_empty_row(const results& got, count b, count h, count i) {
    bool empty = got.lse.at(b, h, i, 0) == -infinity;
    for (count x = 0; x < got.out.view().head_dim(); ++x) {
        empty = empty && bits_of(got.out.at(b, h, i, x)) == 0;
    }
    return empty;
}

attention_case sizes_of(count queries, count keys, count heads = 2, count kv_heads = 1) {
    return {.batch = 2,
            .heads = heads,
            .kv_heads = kv_heads,
            .queries = queries,
            .keys = keys,
            .key_dim = 16,
            .value_dim = 8};
}

/// A boolean mask [queries, keys] for all batch entries and heads.
struct bool_mask {
    count queries;
    count keys;
    std::vector<std::uint8_t> bytes;

    bool_mask(count queries_, count keys_, bool (*sees)(count, count)) : queries(queries_), keys(keys_) {
        for (count i = 0; i < queries; ++i) {
            for (count j = 0; j < keys; ++j) { bytes.push_back(sees(i, j) ? 1 : 0); }
        }
    }
    [[nodiscard]] const_tensor view() const {
        return {bytes.data(), element_type::boolean, {1, 1, queries, keys}, {0, 0, keys, 1}};
    }
    [[nodiscard]] std::vector<std::uint8_t> bits() const {
        std::vector<std::uint8_t> packed(bytes.size() / 8 + 1);
        for (std::size_t n = 0; n < bytes.size(); ++n) {
            packed[n / 8] = static_cast<std::uint8_t>(packed[n / 8] | bytes[n] << (n % 8));
        }
        return packed;
    }
    [[nodiscard]] std::vector<float> bias(float hidden) const {
        std::vector<float> values;
        for (const std::uint8_t byte : bytes) { values.push_back(byte != 0 ? 0.0F : hidden); }
        return values;
    }
    [[nodiscard]] const_tensor bias_view(const std::vector<float>& values) const {
        return {values.data(), element_type::f32, {1, 1, queries, keys}, {0, 0, keys, 1}};
    }
};

bool sees_some(count i, count j) { return (i * 7 + j * 3) % 11 < 6; }

}  // namespace

TEST_CASE("reports: rows without a visible key, alone and among others, are 0 and -inf") {
    const attention_case sizes = sizes_of(70, 150);
    const inputs given = make_inputs(sizes);
    const bool_mask none(70, 150, [](count, count) { return false; });
    const bool_mask alternate(70, 150, [](count i, count) { return i % 3 != 0; });
    const results nothing = attend(sizes, given, {.mask = none.view()});
    const results some = attend(sizes, given, {.mask = alternate.view()});
    for (count i = 0; i < 70; ++i) {
        CHECK(is_empty_row(nothing, 1, 1, i));
        CHECK(is_empty_row(some, 1, 1, i) == (i % 3 == 0));
    }
}

TEST_CASE("reports: a window that hides whole first tiles") {
    const attention_case sizes = sizes_of(600, 600);
    const inputs given = make_inputs(sizes);
    const bool_mask window(600, 600, [](count i, count j) { return j <= i && j >= i - 5; });
    const results got = attend(sizes, given, {.causal = causal::bottom_right, .window_left = 5});
    check_same(got, attend(sizes, given, {.mask = window.view()}));
    CHECK(!is_empty_row(got, 0, 0, 599));
}

TEST_CASE("reports: a window wider than the sequence is no window") {
    const attention_case sizes = sizes_of(100, 130);
    const inputs given = make_inputs(sizes);
    const results want = attend(sizes, given, {.causal = causal::bottom_right});
    for (const count wide : {count{130}, count{1} << 40, INT64_MAX}) {
        check_same(attend(sizes, given, {.causal = causal::bottom_right, .window_left = wide}), want);
        check_same(
            attend(sizes, given, {.causal = causal::bottom_right, .window_left = wide, .window_right = wide}),
            want);
    }
}

TEST_CASE("reports: masks that say the same give the same bits") {
    const attention_case sizes = sizes_of(90, 200, 4, 2);
    const inputs given = make_inputs(sizes);
    const bool_mask mask(90, 200, sees_some);
    const results want = attend(sizes, given, {.scale = 0.3F, .mask = mask.view()});
    const std::vector<std::uint8_t> bits = mask.bits();
    check_same(
        attend(sizes, given,
               {.scale = 0.3F, .mask = {bits.data(), element_type::bit, {1, 1, 90, 200}, {0, 0, 200, 1}}}),
        want);
    // A bias takes scores to natural units first, so it is compared with a mask beside a bias of 0.
    const std::vector<float> hidden = mask.bias(-infinity);
    const std::vector<float> zero(hidden.size(), 0.0F);
    check_same(attend(sizes, given, {.bias = mask.bias_view(hidden)}),
               attend(sizes, given, {.mask = mask.view(), .bias = mask.bias_view(zero)}));
    const std::vector<std::uint8_t> blocks(mask.bytes);
    check_same(
        attend(sizes, given,
               {.scale = 0.3F,
                .blocks = {{blocks.data(), element_type::boolean, {1, 1, 90, 200}, {0, 0, 200, 1}}, 1, 1}}),
        want);
}

TEST_CASE("reports: several masks combine as a logical and") {
    const attention_case sizes = sizes_of(90, 200);
    const inputs given = make_inputs(sizes);
    const bool_mask mask(90, 200, sees_some);
    const bool_mask both(90, 200, [](count i, count j) {
        return sees_some(i, j) && j <= i + 110 && j >= i + 110 - 60 && (i + 110) / 70 == j / 70;
    });
    check_same(
        attend(
            sizes, given,
            {.causal = causal::bottom_right, .window_left = 60, .attention_chunk = 70, .mask = mask.view()}),
        attend(sizes, given, {.mask = both.view()}));
}

TEST_CASE("reports: a very negative finite bias is a weight of 0, not a mask") {
    const attention_case sizes = sizes_of(40, 140);
    const inputs given = make_inputs(sizes);
    const bool_mask all_hidden(40, 140, [](count, count) { return false; });
    const std::vector<float> low = all_hidden.bias(-1e38F);
    const results got = attend(sizes, given, {.bias = all_hidden.bias_view(low)});
    for (count i = 0; i < 40; ++i) { CHECK(!is_empty_row(got, 0, 0, i)); }
}

TEST_CASE("reports: top-left and bottom-right with more and with fewer queries than keys") {
    for (const auto& [queries, keys] : {std::pair<count, count>{50, 30}, {30, 50}}) {
        const attention_case sizes = sizes_of(queries, keys);
        const inputs given = make_inputs(sizes);
        const results bottom = attend(sizes, given, {.causal = causal::bottom_right});
        const results top = attend(sizes, given, {.causal = causal::top_left});
        check_same(bottom,
                   attend(sizes, given, {.causal = causal::bottom_right, .query_position = keys - queries}));
        check_same(top, attend(sizes, given, {.causal = causal::bottom_right, .query_position = 0}));
        for (count i = 0; i < queries; ++i) {
            CHECK(is_empty_row(bottom, 0, 0, i) == (i + keys - queries < 0));
            CHECK(!is_empty_row(top, 0, 0, i));
        }
    }
}

TEST_CASE("reports: a NaN that is seen is not turned into a zero") {
    const attention_case sizes = sizes_of(40, 140);
    const inputs given = make_inputs(sizes);
    given.q.at(0, 0, 3, 2) = quiet_nan;
    given.k.at(1, 0, 100, 1) = quiet_nan;
    const results got = attend(sizes, given, {.window_left = 60, .window_right = 10});
    CHECK(bits_of(got.out.at(0, 0, 3, 0)) == canonical_nan_bits);
    CHECK(bits_of(got.out.at(1, 0, 20, 0)) == canonical_nan_bits);  // position 120 sees keys 60 to 130
    CHECK(std::isfinite(got.out.at(0, 0, 4, 0)));
}

TEST_CASE("reports: NaN and infinities in hidden keys and values do not leak") {
    const attention_case sizes = sizes_of(60, 260);
    const inputs clean = make_inputs(sizes);
    const inputs dirty = make_inputs(sizes);
    const bool_mask mask(60, 260, [](count, count j) { return j % 5 != 2; });
    for (count b = 0; b < 2; ++b) {
        for (count j = 2; j < 260; j += 5) {
            dirty.k.at(b, 0, j, j % 16) = j % 2 == 0 ? quiet_nan : infinity;
            dirty.v.at(b, 0, j, j % 8) = j % 2 == 0 ? -infinity : quiet_nan;
        }
    }
    const std::vector<float> bias = mask.bias(-infinity);
    const std::vector<std::uint8_t> bits = mask.bits();
    const std::vector<float> slopes = {0.5F, 0.25F};
    const tilewise::options hows[] = {
        {.mask = mask.view()},
        {.mask = {bits.data(), element_type::bit, {1, 1, 60, 260}, {0, 0, 260, 1}}},
        {.bias = mask.bias_view(bias)},
        {.soft_cap = 5.0F, .bias = mask.bias_view(bias), .alibi_slopes = slopes},
        {.blocks = {mask.view(), 1, 1}},
    };
    for (const tilewise::options& how : hows) {
        check_same(attend(sizes, dirty, how), attend(sizes, clean, how));
    }
}

TEST_CASE("reports: padding beyond a key length is not read, and lengths may differ") {
    const attention_case sizes = sizes_of(30, 300);
    const inputs clean = make_inputs(sizes);
    const inputs dirty = make_inputs(sizes);
    const std::vector<count> lengths = {129, 30};
    for (count b = 0; b < 2; ++b) {
        for (count j = lengths[static_cast<std::size_t>(b)]; j < 300; ++j) {
            dirty.k.at(b, 0, j, 0) = quiet_nan;
            dirty.v.at(b, 0, j, 0) = quiet_nan;
        }
    }
    const tilewise::options how{.causal = causal::bottom_right, .key_lengths = lengths};
    const results got = attend(sizes, dirty, how);
    check_same(got, attend(sizes, clean, how));
    // Each batch entry alone, with its keys only, is the same.
    for (count b = 0; b < 2; ++b) {
        attention_case alone = sizes_of(30, lengths[static_cast<std::size_t>(b)]);
        alone.batch = 1;
        const results want = make_results(alone);
        const auto entry = [&](const owned_tensor& x) { return x.view().slice(tilewise::axis::batch, b, 1); };
        const auto keys = [&](const owned_tensor& x) {
            return entry(x).slice(tilewise::axis::tokens, 0, alone.keys);
        };
        tilewise::attention(entry(dirty.q), keys(dirty.k), keys(dirty.v), want.out.view(),
                            {.causal = causal::bottom_right});
        CHECK(first_difference(entry(got.out), want.out.view()) == "");
    }
}

TEST_CASE("reports: no keys at all") {
    const attention_case sizes = sizes_of(20, 0);
    const inputs given = make_inputs(sizes);
    const std::vector<float> sinks = {1.5F, -infinity};
    const results got = attend(
        sizes, given, {.causal = causal::bottom_right, .window_left = 4, .soft_cap = 2.0F, .sinks = sinks});
    CHECK(std::fabs(got.lse.at(0, 0, 7, 0) - 1.5F) < 1e-6F);
    CHECK(bits_of(got.out.at(0, 0, 7, 0)) == 0);
    CHECK(is_empty_row(got, 0, 1, 7));
}

TEST_CASE("reports: with a soft cap, keys beyond the last are not finite scores") {
    // With all scores alike, each of n keys weighs 1 / n.
    for (const count keys : {1, 127, 128, 129, 257}) {
        const attention_case sizes = sizes_of(33, keys);
        const inputs given = make_inputs(sizes);
        given.q.fill([] { return 0.0F; });
        given.v.fill([] { return 1.0F; });
        const results got = attend(sizes, given, {.soft_cap = 30.0F});
        CHECK(std::fabs(got.lse.at(1, 1, 32, 0) - std::log(static_cast<float>(keys))) < 1e-5F);
        CHECK(got.out.at(1, 1, 32, 7) == 1.0F);
    }
}

TEST_CASE("reports: a prompt in pieces is the whole prompt") {
    const attention_case whole = sizes_of(300, 300);
    const inputs given = make_inputs(whole);
    const std::vector<float> slopes = {0.5F, 0.125F};
    const std::vector<count> documents = {0, 90, 220, 300};
    tilewise::options how{.causal = causal::bottom_right,
                          .window_left = 100,
                          .prefix = 7,
                          .documents = documents,
                          .alibi_slopes = slopes};
    const results want = attend(whole, given, how);
    for (const count piece : {1, 37, 128}) {
        for (count first = 0; first < 300; first += piece) {
            const count queries = std::min(piece, 300 - first);
            const attention_case part = sizes_of(queries, 300);
            const results got = make_results(part);
            how.query_position = first;
            tilewise::attention(given.q.view().slice(tilewise::axis::tokens, first, queries), given.k.view(),
                                given.v.view(), got.out.view(), how);
            CHECK(first_difference(got.out.view(),
                                   want.out.view().slice(tilewise::axis::tokens, first, queries)) == "");
        }
    }
}

TEST_CASE("reports: packed sequences are each by itself") {
    attention_case packed = sizes_of(400, 500, 4, 2);
    packed.batch = 1;
    const inputs given = make_inputs(packed);
    const std::vector<count> query_starts = {3, 3, 60, 61, 390};
    const std::vector<count> key_starts = {0, 20, 150, 150, 480};
    const tilewise::options how{
        .causal = causal::bottom_right, .query_starts = query_starts, .key_starts = key_starts};
    for (const int threads : {1, 3}) {
        tilewise::options with_threads = how;
        with_threads.threads = threads;
        results got = make_results(packed);
        got.out.clear();
        with_threads.lse = got.lse.view();
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), with_threads);
        for (std::size_t s = 0; s + 1 < query_starts.size(); ++s) {
            const count queries = query_starts[s + 1] - query_starts[s];
            const count keys = key_starts[s + 1] - key_starts[s];
            attention_case alone = sizes_of(queries, keys, 4, 2);
            alone.batch = 1;
            const results want = make_results(alone);
            tilewise::attention(given.q.view().slice(tilewise::axis::tokens, query_starts[s], queries),
                                given.k.view().slice(tilewise::axis::tokens, key_starts[s], keys),
                                given.v.view().slice(tilewise::axis::tokens, key_starts[s], keys),
                                want.out.view(), {.causal = causal::bottom_right});
            CHECK(first_difference(got.out.view().slice(tilewise::axis::tokens, query_starts[s], queries),
                                   want.out.view()) == "");
        }
        // Rows outside of all sequences are not touched.
        const results untouched = make_results(packed);
        for (const count row : {0, 2, 390, 399}) {
            CHECK(bits_of(got.out.at(0, 0, row, 0)) == bits_of(untouched.out.at(0, 0, row, 0)));
        }
    }
}

TEST_CASE("reports: packed sequences, some without queries or keys, whose key heads take turns") {
    const attention_case packed{
        .heads = 6, .kv_heads = 3, .queries = 10, .keys = 10000, .key_dim = 100, .layouts = {1, 1, 1, 1}};
    const inputs given = make_inputs(packed);
    const std::vector<count> query_starts = {0, 0, 2, 4, 6, 8, 10};
    const std::vector<count> key_starts = {0, 100, 2600, 2600, 5200, 7600, 10000};
    const results want = make_results(packed);
    const tilewise::options how{
        .query_starts = query_starts, .key_starts = key_starts, .lse = want.lse.view()};
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(), how);
    const std::size_t states = std::size_t{5} * 6 * 2 * (3 + 64) * sizeof(float);
    CHECK(tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(), how)
              .shared_scratch_bytes > states);
    for (const int threads : {1, 2, 3, 7}) {
        const results got = make_results(packed);
        tilewise::options with_threads = how;
        with_threads.threads = threads;
        with_threads.lse = got.lse.view();
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), with_threads);
        CHECK(first_difference(got, want) == "");
    }
}

}  // namespace tilewise_tests

// Views without elements: nobody checks their memory and strides, so nothing may be computed with them.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <tilewise/merge.hpp>
#include <tilewise/reference.hpp>
#include <tilewise/rotary.hpp>
#include <tilewise/stream.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "streams.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::element_type;

constexpr extents wild_strides = {count{1} << 62, -(count{1} << 62), std::numeric_limits<count>::max(), -7};

template <class View>
void make_wild(View& view, bool may_be_null) {
    if (view.batch() * view.heads() * view.tokens() * view.head_dim() != 0) { return; }
    view.strides = wild_strides;
    if (may_be_null) { view.data = nullptr; }
}

/// Cases with at least one view that has no element.
constexpr std::array cases = {attention_case{.heads = 2, .queries = 50, .keys = 0},
                              attention_case{.queries = 50, .keys = 200, .key_dim = 0},
                              attention_case{.heads = 2, .queries = 5, .keys = 200, .value_dim = 0},
                              attention_case{.queries = 1, .keys = 300, .key_dim = 0},
                              attention_case{.queries = 2, .keys = 300, .value_dim = 0},
                              attention_case{.batch = 0, .queries = 5, .keys = 5},
                              attention_case{.heads = 0, .kv_heads = 0, .queries = 5, .keys = 5},
                              attention_case{.heads = 2, .queries = 0, .keys = 5}};

}  // namespace

TEST_CASE("views without elements may have null data and any strides") {
    for (const attention_case& sizes : cases) {
        INFO(show(sizes));
        const inputs given = make_inputs(sizes);
        const all_results want(sizes, {});
        const all_results got(sizes, {});
        tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(),
                                       want.asked_for({}));
        tilewise::const_tensor q = given.q.view();
        tilewise::const_tensor k = given.k.view();
        tilewise::const_tensor v = given.v.view();
        tilewise::tensor out = got.out.view();
        tilewise::options how = got.asked_for({});
        for (tilewise::const_tensor* view : {&q, &k, &v}) { make_wild(*view, true); }
        make_wild(out, true);
        for (tilewise::tensor* view : {&how.lse, &how.extra.row_maximum, &how.extra.entropy,
                                       &how.extra.key_weights, &how.extra.weights}) {
            make_wild(*view, false);
        }
        tilewise::attention(q, k, v, out, how);
        CHECK(first_difference(got, want) == "");
        tilewise::reference::attention(q, k, v, out, how);
        CHECK(first_difference(got, want) == "");
    }
}

TEST_CASE("masks without elements may have any strides") {
    for (const attention_case& sizes : cases) {
        if (sizes.batch * sizes.heads * sizes.queries * sizes.keys != 0) { continue; }
        INFO(show(sizes));
        const inputs given = make_inputs(sizes);
        const results want = naive(sizes, given);
        const results got = make_results(sizes);
        const std::uint8_t place = 0;
        const extents grid = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
        const tilewise::options how{.mask = {&place, tilewise::element_type::boolean, grid, wild_strides},
                                    .lse = got.lse.view()};
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
        CHECK(first_difference(got, want) == "");
    }
}

TEST_CASE("views without elements need no scales") {
    const float* const nowhere = reinterpret_cast<const float*>(std::uintptr_t{16});
    for (const element_type type : {element_type::i8, element_type::e4m3, element_type::e5m2}) {
        for (const count queries : {1, 2, 50}) {
            for (const bool is_key : {false, true}) {
                const attention_case sizes{.queries = queries,
                                           .keys = 300,
                                           .key_dim = is_key ? 0 : 20,
                                           .value_dim = is_key ? 20 : 0};
                const inputs given = make_inputs(sizes);
                const results want = naive(sizes, given);
                const results got = make_results(sizes);
                tilewise::const_tensor k = given.k.view();
                tilewise::const_tensor v = given.v.view();
                tilewise::const_tensor& empty = is_key ? k : v;
                empty = {nullptr, type, empty.extents, wild_strides};
                empty.scales = nowhere;
                empty.scale_strides = {7, 7, 1, 0};
                tilewise::attention(given.q.view(), k, v, got.out.view(), {.lse = got.lse.view()});
                CHECK(first_difference(got, want) == "");
            }
        }
    }
}

TEST_CASE("streams of views without elements") {
    for (const attention_case& sizes : cases) {
        INFO(show(sizes));
        const inputs given = make_inputs(sizes);
        const results want = naive(sizes, given);
        const results got = make_results(sizes);
        tilewise::const_tensor q = given.q.view();
        tilewise::const_tensor k = given.k.view();
        tilewise::const_tensor v = given.v.view();
        tilewise::tensor out = got.out.view();
        for (tilewise::const_tensor* view : {&q, &k, &v}) { make_wild(*view, true); }
        make_wild(out, true);
        tilewise::attention_stream stream(q, {.kv_heads = sizes.kv_heads, .value_dim = sizes.value_dim});
        for (const count count_of_keys : equal_pieces(sizes.keys, 70)) {
            const count first = stream.keys_added();
            stream.add(k.slice(tilewise::axis::tokens, first, count_of_keys),
                       v.slice(tilewise::axis::tokens, first, count_of_keys));
        }
        stream.finish(out, got.lse.view());
        CHECK(first_difference(got, want) == "");
    }
}

TEST_CASE("an axis with one index may have any stride") {
    constexpr std::array ones = {attention_case{.queries = 1, .keys = 1, .key_dim = 1, .value_dim = 1},
                                 attention_case{.heads = 3, .queries = 1, .keys = 300},
                                 attention_case{.heads = 2, .kv_heads = 2, .queries = 70, .keys = 1},
                                 attention_case{.batch = 2, .queries = 50, .keys = 50, .key_dim = 1},
                                 attention_case{.batch = 2, .queries = 5, .keys = 200, .value_dim = 1}};
    const auto make_wild_where_free = [](auto& view) {
        for (std::size_t a = 0; a < 4; ++a) {
            if (view.extents[a] == 1) { view.strides[a] = wild_strides[a]; }
        }
    };
    for (const attention_case& sizes : ones) {
        INFO(show(sizes));
        const inputs given = make_inputs(sizes);
        const results want = naive(sizes, given);
        const results got = make_results(sizes);
        tilewise::const_tensor q = given.q.view();
        tilewise::const_tensor k = given.k.view();
        tilewise::const_tensor v = given.v.view();
        tilewise::tensor out = got.out.view();
        tilewise::options how{.lse = got.lse.view()};
        for (tilewise::const_tensor* view : {&q, &k, &v}) { make_wild_where_free(*view); }
        for (tilewise::tensor* view : {&out, &how.lse}) { make_wild_where_free(*view); }
        tilewise::attention(q, k, v, out, how);
        CHECK(first_difference(got, want) == "");
        tilewise::reference::attention(q, k, v, out, how);
        CHECK(first_difference(got, want) == "");
        tilewise::attention_stream stream(q, {.kv_heads = sizes.kv_heads, .value_dim = sizes.value_dim});
        stream.add(k, v);
        stream.finish(out, how.lse);
        CHECK(first_difference(got, want) == "");
        tilewise::rotary_embedding(out, {.pairs = tilewise::rotary_pairs::interleaved, .dims = 0});
    }
}

TEST_CASE("merging and turning rows without elements: strides are not used, and no time goes by") {
    constexpr count many = count{1} << 60;
    const tilewise::tensor none{nullptr, tilewise::element_type::f32, {many, 0, 1 << 30, 8}, wild_strides};
    const tilewise::tensor none_either{
        nullptr, tilewise::element_type::f32, {many, 0, 1 << 30, 1}, wild_strides};
    const std::array parts = {tilewise::partial_result{none, none_either}};
    tilewise::merge(parts, none);
    tilewise::rotary_embedding(none);
    const tilewise::tensor table{nullptr, tilewise::element_type::f32, {1, 1, 0, many}, wild_strides};
    tilewise::rotary_tables(table, table);

    std::vector<float> lse = {1.0F, 2.0F};
    std::vector<float> merged(2);
    const tilewise::tensor no_values{nullptr, tilewise::element_type::f32, {1, 1, 2, 0}, wild_strides};
    const std::array two = {tilewise::partial_result{no_values, tilewise::row_values(lse.data(), 1, 1, 2)},
                            tilewise::partial_result{no_values, tilewise::row_values(lse.data(), 1, 1, 2)}};
    tilewise::merge(two, no_values, tilewise::row_values(merged.data(), 1, 1, 2));
    CHECK(merged[1] > 2.69F);
    CHECK(merged[1] < 2.70F);
}

TEST_CASE("results without elements take no time, however many heads they are said to have") {
    const attention_case sizes{.queries = 0, .keys = 0};
    const inputs given = make_inputs(sizes);
    const all_results into(sizes, {});
    constexpr count many = count{1} << 60;
    const auto with_many_heads = [](auto view) {
        view.extents[1] = many;
        return view;
    };
    tilewise::options how = into.asked_for({});
    how.extra.key_weights.extents[1] = many;
    for (tilewise::tensor* view :
         {&how.lse, &how.extra.row_maximum, &how.extra.entropy, &how.extra.weights}) {
        *view = {};
    }
    tilewise::attention(with_many_heads(given.q.view()), with_many_heads(given.k.view()),
                        with_many_heads(given.v.view()), with_many_heads(into.out.view()), how);
    CHECK(damage(into) == "");
}

TEST_CASE("heads without elements take no time, even if they have queries and keys") {
    constexpr count many = count{1} << 60;
    const auto view_of = [](count tokens) {
        return tilewise::tensor{nullptr, tilewise::element_type::f32, {1, many, tokens, 0}, {}};
    };
    const std::uint8_t seen[5] = {1, 0, 1, 1, 0};
    const tilewise::options how{.mask = {seen, tilewise::element_type::boolean, {1, 1, 1, 5}, {0, 0, 0, 1}}};
    tilewise::attention(view_of(7), view_of(5), view_of(5), view_of(7), how);
    tilewise::reference::attention(view_of(7), view_of(5), view_of(5), view_of(7), how);
    CHECK(tilewise::plan_attention(view_of(7), view_of(5), view_of(5), view_of(7), how).tasks == 0);
}

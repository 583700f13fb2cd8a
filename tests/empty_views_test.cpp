// Views without elements: nobody checks their memory and strides, so nothing may be computed with them.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <tilewise/reference.hpp>

#include "all_results.hpp"
#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;

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

// Properties that need no reference: what may not change a result, and what every result must be like.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using tilewise::axis;
using tilewise::causal;
using count = std::int64_t;

// Keys from `first` on become garbage of all sorts.
void spoil(const owned_tensor& tensor, count first) {
    constexpr std::array garbage = {quiet_nan, infinity, -infinity, 3e38F, -3e38F, 1e-45F};
    const auto& view = tensor.view();
    std::size_t number = 0;
    for (count b = 0; b < view.batch(); ++b) {
        for (count h = 0; h < view.heads(); ++h) {
            for (count t = first; t < view.tokens(); ++t) {
                for (count i = 0; i < view.head_dim(); ++i) {
                    tensor.at(b, h, t, i) = garbage[number++ % garbage.size()];
                }
            }
        }
    }
}

// The rows first .. first + count - 1 of both results.
results rows_of(const results& all, count first, count rows) {
    const auto copy = [&](const owned_tensor& from) {
        const auto part = from.view().slice(axis::tokens, first, rows);
        owned_tensor made(part.extents);
        for (count b = 0; b < part.batch(); ++b) {
            for (count h = 0; h < part.heads(); ++h) {
                for (count t = 0; t < part.tokens(); ++t) {
                    for (count i = 0; i < part.head_dim(); ++i) {
                        made.at(b, h, t, i) = *element(part, b, h, t, i);
                    }
                }
            }
        }
        return made;
    };
    return {copy(all.out), copy(all.lse)};
}

// The library's results for a part of the inputs.
results compute_part(const tilewise::const_tensor& q, const tilewise::const_tensor& k,
                     const tilewise::const_tensor& v, causal mask) {
    results made{owned_tensor({q.batch(), q.heads(), q.tokens(), v.head_dim()}),
                 owned_tensor({q.batch(), q.heads(), q.tokens(), 1})};
    tilewise::attention(q, k, v, made.out.view(), {.scale = 0.25F, .causal = mask, .lse = made.lse.view()});
    return made;
}

attention_case ordinary_case(causal mask) {
    return {.batch = 2,
            .heads = 4,
            .kv_heads = 2,
            .queries = 150,
            .keys = 270,
            .key_dim = 20,
            .value_dim = 24,
            .causal = mask,
            .scale = 0.25F};
}

}  // namespace

TEST_CASE("keys that a causal row does not see do not matter, not even as NaN") {
    for (const causal mask : {causal::bottom_right, causal::top_left}) {
        const attention_case which = ordinary_case(mask);
        const results clean = tiled(which, make_inputs(which));
        for (const count row : {0, 1, 7, 8, 47, 48, 100, 127, 128, 149}) {
            const count visible = row + 1 + (mask == causal::bottom_right ? which.keys - which.queries : 0);
            const inputs given = make_inputs(which);
            spoil(given.k, visible);
            spoil(given.v, visible);
            INFO("row ", row, ", ", show(mask));
            CHECK(first_difference(rows_of(tiled(which, given, {.threads = 2}), 0, row + 1),
                                   rows_of(clean, 0, row + 1)) == "");
        }
    }
}

TEST_CASE("a NaN reaches the rows that see it, and no other") {
    for (const count key : {0, 5, 127, 128, 200, 269}) {
        for (const bool in_value : {false, true}) {
            const attention_case which = ordinary_case(causal::bottom_right);
            const inputs given = make_inputs(which);
            (in_value ? given.v : given.k).at(1, 0, key, 3) = quiet_nan;
            const results got = tiled(which, given);
            const results clean = tiled(which, make_inputs(which));
            for (count b = 0; b < which.batch; ++b) {
                for (count h = 0; h < which.heads; ++h) {
                    for (count t = 0; t < which.queries; ++t) {
                        const bool sees = b == 1 && h < 2 && key <= t + which.keys - which.queries;
                        for (count i = 0; i < which.value_dim; ++i) {
                            const bool hit = sees && (!in_value || i == 3);
                            const std::uint32_t bits = bits_of(got.out.at(b, h, t, i));
                            REQUIRE(bits == (hit ? canonical_nan_bits : bits_of(clean.out.at(b, h, t, i))));
                        }
                        const std::uint32_t lse_bits = bits_of(got.lse.at(b, h, t, 0));
                        REQUIRE(lse_bits ==
                                (sees && !in_value ? canonical_nan_bits : bits_of(clean.lse.at(b, h, t, 0))));
                    }
                }
            }
        }
    }
}

TEST_CASE("a row that sees no key gives +0 and lse -inf") {
    const attention_case which{
        .heads = 2, .kv_heads = 1, .queries = 100, .keys = 30, .causal = causal::bottom_right};
    const inputs given = make_inputs(which);
    spoil(given.v, 30);
    const results got = tiled(which, given);
    for (count h = 0; h < 2; ++h) {
        for (count t = 0; t < 70; ++t) {
            for (count i = 0; i < 64; ++i) { REQUIRE(bits_of(got.out.at(0, h, t, i)) == 0U); }
            REQUIRE(bits_of(got.lse.at(0, h, t, 0)) == bits_of(-infinity));
        }
        CHECK(bits_of(got.lse.at(0, h, 70, 0)) != bits_of(-infinity));
    }
}

TEST_CASE("batch entries and heads are computed apart from each other") {
    for (const causal mask : all_causal) {
        const attention_case which = ordinary_case(mask);
        const inputs given = make_inputs(which);
        const results all = tiled(which, given, {.threads = 3});
        const auto q = given.q.view();
        const auto k = given.k.view();
        const auto v = given.v.view();
        for (count b = 0; b < which.batch; ++b) {
            for (count h = 0; h < which.heads; ++h) {
                const auto one = [&](const tilewise::tensor& of, count head) {
                    return of.slice(axis::batch, b, 1).slice(axis::heads, head, 1);
                };
                const results alone = compute_part(one(q, h), one(k, h / 2), one(v, h / 2), mask);
                CHECK(first_difference(alone.out.view(), one(all.out.view(), h)) == "");
                CHECK(first_difference(alone.lse.view(), one(all.lse.view(), h)) == "");
            }
        }
    }
}

TEST_CASE("permuting batch entries and heads permutes the outputs") {
    const attention_case which{
        .batch = 3, .heads = 3, .kv_heads = 3, .queries = 40, .keys = 50, .scale = 0.25F};
    const inputs given = make_inputs(which);
    const results straight = tiled(which, given);
    // The same elements under reversed batch and head axes.
    const auto turn = [](tilewise::tensor view) {
        for (const std::size_t a : {0U, 1U}) {
            view.data = static_cast<float*>(view.data) + (view.extents[a] - 1) * view.strides[a];
            view.strides[a] = -view.strides[a];
        }
        return view;
    };
    const results turned =
        compute_part(turn(given.q.view()), turn(given.k.view()), turn(given.v.view()), causal::none);
    CHECK(first_difference(turned.out.view(), turn(straight.out.view())) == "");
    CHECK(first_difference(turned.lse.view(), turn(straight.lse.view())) == "");
}

TEST_CASE("a part of the queries gives the bits that it has in the whole: prefill in pieces, and decoding") {
    for (const causal mask : all_causal) {
        const attention_case which = ordinary_case(mask);
        const inputs given = make_inputs(which);
        const results all = tiled(which, given);
        for (const auto& range : std::array<std::array<count, 2>, 8>{
                 {{0, 1}, {0, 150}, {1, 1}, {149, 1}, {7, 48}, {100, 50}, {48, 49}, {63, 2}}}) {
            const count first = range[0];
            const count rows = range[1];
            // A causal part sees the keys up to its last row's, and is then aligned to the bottom right.
            count keys = which.keys;
            if (mask == causal::bottom_right) { keys = first + rows + which.keys - which.queries; }
            if (mask == causal::top_left) { keys = first + rows; }
            const results part = compute_part(given.q.view().slice(axis::tokens, first, rows),
                                              given.k.view().slice(axis::tokens, 0, keys),
                                              given.v.view().slice(axis::tokens, 0, keys),
                                              mask == causal::none ? causal::none : causal::bottom_right);
            INFO("rows ", first, " + ", rows, ", ", show(mask));
            CHECK(first_difference(part, rows_of(all, first, rows)) == "");
        }
    }
}

TEST_CASE("the two causal alignments agree when there are as many queries as keys") {
    attention_case which{.queries = 200, .keys = 200, .causal = causal::bottom_right};
    const inputs given = make_inputs(which);
    const results bottom = tiled(which, given);
    which.causal = causal::top_left;
    CHECK(first_difference(tiled(which, given), bottom) == "");
}

TEST_CASE("a part of the value columns gives the bits that it has in the whole") {
    const attention_case which = ordinary_case(causal::top_left);
    const inputs given = make_inputs(which);
    const results all = tiled(which, given);
    for (const auto& [first, columns] :
         std::array<std::array<count, 2>, 4>{{{0, 1}, {3, 17}, {23, 1}, {8, 16}}}) {
        const results part =
            compute_part(given.q.view(), given.k.view(), given.v.view().slice(axis::head_dim, first, columns),
                         causal::top_left);
        CHECK(first_difference(part.out.view(), all.out.view().slice(axis::head_dim, first, columns)) == "");
    }
}

TEST_CASE("zero results are +0, and NaN results the one canonical NaN") {
    const attention_case which{.queries = 60, .keys = 140, .key_dim = 8, .value_dim = 4};
    const inputs given = make_inputs(which);
    for (count j = 0; j < which.keys; ++j) {
        given.v.at(0, 0, j, 0) = -0.0F;
        given.v.at(0, 0, j, 1) = j % 2 == 0 ? 1e-45F : -1e-45F;  // cancels, or underflows
        given.v.at(0, 0, j, 2) = from_bits(0xffc00001U);
        given.v.at(0, 0, j, 3) = j % 2 == 0 ? infinity : -infinity;
    }
    const results got = tiled(which, given);
    for (count t = 0; t < which.queries; ++t) {
        CHECK(bits_of(got.out.at(0, 0, t, 0)) == 0U);
        CHECK(bits_of(got.out.at(0, 0, t, 1)) != 0x80000000U);
        CHECK(bits_of(got.out.at(0, 0, t, 2)) == canonical_nan_bits);
        CHECK(bits_of(got.out.at(0, 0, t, 3)) == canonical_nan_bits);
    }
}

TEST_CASE("asking for lse, threads or scratch does not change the output") {
    const attention_case which = ordinary_case(causal::bottom_right);
    const inputs given = make_inputs(which);
    const results with_lse = tiled(which, given);
    const results without = make_results(which);
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), without.out.view(),
                        {.scale = which.scale, .causal = which.causal});
    CHECK(first_difference(without.out.view(), with_lse.out.view()) == "");
    CHECK(without.lse.damage() == "");
}

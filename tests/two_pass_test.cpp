// The theorem behind the promise: since the running maximum is an integer power of two, the online softmax
// over tiles gives the bits of a two-pass one that knows the row's maximum from the start.

#include <doctest/doctest.h>

#include <array>

#include "models.hpp"

using namespace tilewise_tests;

namespace {

// Checks every row of the library's results, and of the reference's, against the two-pass model.
void check_two_pass(const attention_case& which) {
    const inputs given = make_inputs(which);
    const results want = make_results(which);
    for_each_row(which, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
        const row model = two_pass_row(which, given, b, h, i);
        for (std::size_t x = 0; x < model.out.size(); ++x) {
            want.out.at(b, h, i, static_cast<std::int64_t>(x)) = model.out[x];
        }
        want.lse.at(b, h, i, 0) = model.lse;
    });
    INFO(show(which));
    const results got = tiled(which, given);
    CHECK(first_difference(got, want) == "");
    const results reference = naive(which, given);
    CHECK(first_difference(reference, want) == "");
}

}  // namespace

TEST_CASE("two passes with one maximum give the same bits") {
    std::uint64_t seed = 0;
    for (const std::int64_t keys : {1, 16, 127, 128, 129, 300, 1000}) {
        for (const auto causal : all_causal) {
            // Scores up to some tens apart, so that chunks have different maxima and nothing underflows.
            for (const float scale : {0.125F, 0.5F, 1.5F, -0.4F}) {
                check_two_pass({.heads = 3,
                                .kv_heads = 1,
                                .queries = by_effort(7, 40, 40),
                                .keys = keys,
                                .key_dim = 16,
                                .value_dim = 17,
                                .causal = causal,
                                .scale = scale,
                                .seed = ++seed});
            }
        }
    }
}

TEST_CASE("two passes give the same bits with the default scale") {
    for (const std::int64_t key_dim : {1, 2, 3, 5, 48, 64, 80, 100, 128, 200}) {
        check_two_pass({.queries = 20, .keys = by_effort(150, 150, 400), .key_dim = key_dim, .value_dim = 8});
    }
}

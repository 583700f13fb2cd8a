// The plan: what it states is true, and small work stays on one thread.

#include <doctest/doctest.h>

#include <algorithm>

#include "cases.hpp"
#include "models.hpp"
#include "thread_pool.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;

tilewise::plan plan_of(const attention_case& which, int threads = 0, std::size_t scratch_budget = 0) {
    const inputs given = make_inputs(which);
    const results into = make_results(which);
    return tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), into.out.view(),
                                    threaded({.scale = which.scale,
                                              .causal = which.causal,
                                              .lse = into.lse.view(),
                                              .threads = threads,
                                              .scratch_budget = scratch_budget}));
}

}  // namespace

TEST_CASE("plan: visible scores and floating-point operations are those that counting finds") {
    random_source random(6);
    for (count number = 0; number < 200; ++number) {
        attention_case which;
        which.batch = random.between(0, 3);
        which.kv_heads = random.between(1, 3);
        which.heads = which.kv_heads * random.between(1, 3);
        which.queries = random.between(0, 40);
        which.keys = random.between(0, 40);
        which.key_dim = random.between(1, 9);
        which.value_dim = random.between(1, 9);
        which.causal = all_causal[static_cast<std::size_t>(number % 3)];
        double scores = 0.0;
        for (count i = 0; i < which.queries; ++i) { scores += static_cast<double>(visible_keys(which, i)); }
        scores *= static_cast<double>(which.batch * which.heads);
        INFO(show(which));
        const tilewise::plan plan = plan_of(which);
        CHECK(plan.visible_scores == scores);
        CHECK(plan.flops == 2.0 * static_cast<double>(which.key_dim + which.value_dim) * scores);
    }
}

TEST_CASE("plan: tasks cover the rows, in whole panels, and there are threads for them") {
    for (const count queries : {1, 17, 200, 1000}) {
        for (const auto& [heads, kv_heads] : {std::pair<count, count>{1, 1}, {6, 2}, {8, 8}}) {
            for (const int threads : {1, 2, 3, 7}) {
                const attention_case which{
                    .batch = 2, .heads = heads, .kv_heads = kv_heads, .queries = queries, .keys = 300};
                const tilewise::plan plan = plan_of(which, threads);
                INFO(show(which));
                CHECK(plan.isa == tilewise::active_isa());
                CHECK(plan.chunk_keys == 128);
                const count rows = queries * (heads / kv_heads);
                CHECK(plan.tasks >= 2 * kv_heads * ((rows + plan.block_rows - 1) / plan.block_rows));
                CHECK(plan.tasks <= 2 * kv_heads * ((rows + plan.panel_rows - 1) / plan.panel_rows));
                CHECK((plan.block_rows % plan.panel_rows == 0 || plan.block_rows == rows));
                CHECK(plan.threads >= 1);
                CHECK(plan.threads <= threads);
                CHECK(plan.threads <= plan.tasks);
                CHECK(plan.scratch_bytes ==
                      static_cast<std::size_t>(plan.threads) * plan.scratch_bytes_per_thread +
                          plan.shared_scratch_bytes);
            }
        }
    }
}

TEST_CASE("plan: with a few rows and many keys, keys are cut into parts") {
    const tilewise::plan one_head =
        plan_of({.queries = 1, .keys = 30000, .key_dim = 128, .value_dim = 128}, 4);
    CHECK(one_head.threads == 4);
    CHECK(one_head.key_parts >= 4);
    CHECK(one_head.tasks == one_head.key_parts);
    CHECK(plan_of({.queries = 1, .keys = 30000}, 1).key_parts == 1);
    CHECK(plan_of({.queries = 1, .keys = 200}, 4).key_parts == 1);
    CHECK(plan_of({.heads = 32, .kv_heads = 32, .queries = 1, .keys = 30000, .key_dim = 8, .value_dim = 8}, 4)
              .key_parts == 1);
    CHECK(plan_of({.queries = 4096, .keys = 4096}, 8).key_parts == 1);
}

TEST_CASE("plan: key heads take turns on many keys, where their rows lie side by side") {
    const attention_case by_token{
        .batch = 2, .heads = 8, .kv_heads = 4, .queries = 1, .keys = 2500, .layouts = {0, 1, 1, 0}};
    const std::size_t states = std::size_t{2} * 8 * (3 + 64) * sizeof(float);
    CHECK(plan_of(by_token, 1).shared_scratch_bytes == states);
    CHECK(plan_of(by_token, 1, states - 1).shared_scratch_bytes == 0);
    const auto takes_turns = [](const attention_case& which) {
        return plan_of(which, 1).shared_scratch_bytes > 0;
    };
    attention_case other = by_token;
    other.layouts = {1, 0, 0, 1};
    CHECK(!takes_turns(other));
    other = by_token;
    other.keys = 2048;
    CHECK(!takes_turns(other));
    other = by_token;
    other.queries = 200;
    CHECK(!takes_turns(other));
    other = by_token;
    other.key_dim = other.value_dim = 32;  // 512 bytes from token to token
    CHECK(!takes_turns(other));
}

TEST_CASE("plan: small work uses one thread; one head with one long sequence keeps all busy") {
    CHECK(plan_of({.queries = 16, .keys = 16}, 8).threads == 1);
    CHECK(plan_of({.queries = 1, .keys = 64, .key_dim = 128, .value_dim = 128}, 64).threads == 1);
    CHECK(plan_of({.heads = 32, .kv_heads = 32, .queries = 4, .keys = 16, .key_dim = 32, .value_dim = 32}, 8)
              .threads == 1);
    const tilewise::plan large = plan_of({.queries = 4096, .keys = 4096}, 8);
    CHECK(large.threads == 8);
    CHECK(large.tasks >= 4 * 8);
}

TEST_CASE("plan: nothing to do is no task") {
    for (const int empty : {0, 1, 2}) {
        attention_case which{.queries = 5, .keys = 5};
        (empty == 0 ? which.batch : empty == 1 ? which.heads : which.queries) = 0;
        if (empty == 1) { which.kv_heads = 0; }
        const tilewise::plan plan = plan_of(which, 4);
        CHECK(plan.tasks == 0);
        CHECK(plan.threads == 1);
        CHECK(plan.scratch_bytes == 0);
        CHECK(plan.flops == 0.0);
        CHECK(plan.visible_scores == 0.0);
    }
    // Rows that see no key are written all the same.
    CHECK(plan_of({.queries = 5, .keys = 0}).tasks >= 1);
}

TEST_CASE("plan: empty tensors may have any other extents") {
    constexpr count large = count{1} << 62U;
    constexpr count many = count{1} << 40U;
    float anything = 0.0F;
    const auto view = [&](count batch, count heads, count tokens, count dim) {
        return tilewise::tensor{&anything, tilewise::element_type::f32, {batch, heads, tokens, dim}, {}};
    };
    for (const auto causal : all_causal) {
        const tilewise::plan no_batch =
            tilewise::plan_attention(view(0, large, 8, 1), view(0, 1, large, 1), view(0, 1, large, 1),
                                     view(0, large, 8, 1), {.causal = causal});
        CHECK(no_batch.tasks == 0);
        CHECK(no_batch.visible_scores == 0.0);
        const tilewise::plan no_query =
            tilewise::plan_attention(view(1, large, 0, 1), view(1, large, many, 1), view(1, large, many, 1),
                                     view(1, large, 0, 1), {.causal = causal});
        CHECK(no_query.tasks == 0);
        CHECK(no_query.visible_scores == 0.0);
    }
}

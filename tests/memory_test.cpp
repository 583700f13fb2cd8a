// Memory: a call allocates the scratch that its plan states and no more, whatever the lengths; that scratch
// is small; and where it cannot be had, the call throws and writes nothing.

#include <doctest/doctest.h>

#include <new>

#include "all_results.hpp"
#include "allocation_counter.hpp"
#include "cases.hpp"
#include "thread_pool.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::axis;

/// What a call may allocate beside its scratch: OpenMP's bookkeeping when it starts threads.
std::size_t bookkeeping(const tilewise::plan& plan) { return plan.threads == 1 ? 0 : 64 * 1024; }

constexpr std::size_t most_scratch_per_thread = 512 * 1024;

tilewise::options options_of(const attention_case& which, const results& into, const setting& how) {
    return threaded({.scale = which.scale,
                     .causal = which.causal,
                     .lse = into.lse.view(),
                     .threads = how.threads,
                     .scratch_budget = how.scratch_budget});
}

/// Calls attention and checks what it allocates, once OpenMP has started its threads. Returns the plan.
tilewise::plan check_allocations(const inputs& given, const owned_tensor& out,
                                 const tilewise::options& options) {
    const tilewise::plan plan =
        tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), out.view(), options);
    std::size_t bytes = 0;
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), out.view(), options);
    {
        const allocation_counter counter;
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), out.view(), options);
        bytes = counter.bytes();
    }
    INFO("threads ", options.threads, ", scratch budget ", options.scratch_budget);
    CHECK(bytes >= plan.scratch_bytes);
    CHECK(bytes <= plan.scratch_bytes + bookkeeping(plan));
    return plan;
}

/// The same without results that need memory of their own.
void check_allocations(const attention_case& which, const inputs& given, const setting& how) {
    INFO(show(which));
    const results into = make_results(which);
    const tilewise::plan plan = check_allocations(given, into.out, options_of(which, into, how));
    CHECK(plan.scratch_bytes ==
          plan.scratch_bytes_per_thread * static_cast<std::size_t>(plan.threads) + plan.shared_scratch_bytes);
    CHECK((plan.key_parts > 1 || plan.shared_scratch_bytes == 0));
}

/// The plan for tensors that need not exist: planning reads no element.
tilewise::plan plan_for(const attention_case& which, const setting& how) {
    static float anything = 0.0F;
    const auto view = [&](count heads, count tokens, count dim, count token_stride) {
        return tilewise::tensor{&anything,
                                tilewise::element_type::f32,
                                {which.batch, heads, tokens, dim},
                                {heads * tokens * token_stride, tokens * token_stride, token_stride, 1}};
    };
    // The output starts where no input lies.
    tilewise::tensor out = view(which.heads, which.queries, which.value_dim, which.value_dim);
    out.data = reinterpret_cast<float*>(std::uintptr_t{1} << 60U);
    return tilewise::plan_attention(
        view(which.heads, which.queries, which.key_dim, which.key_dim),
        view(which.kv_heads, which.keys, which.key_dim, 2 * which.key_dim + 7),
        view(which.kv_heads, which.keys, which.value_dim, which.value_dim), out,
        {.causal = which.causal, .threads = how.threads, .scratch_budget = how.scratch_budget});
}

}  // namespace

TEST_CASE("memory: the counter counts") {
    const allocation_counter counter;
    ::operator delete(::operator new(4000));
    CHECK(counter.bytes() >= 4000);
    CHECK(counter.largest() == 4000);
    ::operator delete(::operator new(12345, std::align_val_t(64)), std::align_val_t(64));
    CHECK(counter.bytes() >= 4000 + 12345);
    CHECK(counter.largest() >= 12345);
    CHECK(counter.requests() >= 2);
}

TEST_CASE("memory: a call allocates its scratch and no more") {
    for (const setting& how : all_settings()) {
        for (const std::size_t layout : {0U, 4U, 5U}) {
            for (const count keys : {1, 100, 1000}) {
                attention_case which{.heads = 4,
                                     .kv_heads = 2,
                                     .queries = 50,
                                     .keys = keys,
                                     .key_dim = 40,
                                     .value_dim = 70,
                                     .causal = tilewise::causal::bottom_right};
                which.layouts = {layout, layout, layout, 0};
                check_allocations(which, make_inputs(which), how);
            }
        }
    }
}

TEST_CASE("memory: sums of weights per key take 8 bytes per query row, other results nothing") {
    const attention_case which{.heads = 2, .queries = 4000, .keys = 300, .key_dim = 8, .value_dim = 8};
    const inputs given = make_inputs(which);
    for (const setting& how : {setting{1, 0}, setting{1, 1}, setting{3, 0}}) {
        const all_results into(which, {0, 1, 3999});
        tilewise::options options =
            into.asked_for({.threads = how.threads, .scratch_budget = how.scratch_budget});
        const tilewise::plan all = check_allocations(given, into.out, options);
        options.extra.key_weights = {};
        const tilewise::plan others = check_allocations(given, into.out, options);
        options.extra = {};
        const tilewise::plan none = check_allocations(given, into.out, options);
        CHECK(all.scratch_bytes == all.scratch_bytes_per_thread * static_cast<std::size_t>(all.threads) +
                                       std::size_t{8} * 2 * 4000);
        CHECK(others.scratch_bytes == none.scratch_bytes);
    }
}

TEST_CASE("memory: nothing to do allocates nothing to speak of") {
    const attention_case which{.queries = 0, .keys = 1000};
    check_allocations(which, make_inputs(which), {.threads = 7});
}

TEST_CASE("memory: 131072 keys run within the scratch of 1024, and give the right bits") {
    const count rows = by_effort(3, 16, 64);
    const attention_case which{.queries = rows, .keys = 131072, .scale = 0.3F};
    const inputs given = make_inputs(which);
    check_allocations(which, given, {});
    check_allocations(which, given, {.threads = 1});
    const results got = tiled(which, given);

    attention_case shorter = which;
    shorter.keys = 1024;
    CHECK(plan_for(which, {.threads = 1}).scratch_bytes_per_thread ==
          plan_for(shorter, {.threads = 1}).scratch_bytes_per_thread);

    // The naive formulation would need rows x 131072 scores: one row of it will do.
    attention_case last = which;
    last.queries = 1;
    inputs alone{owned_tensor({1, 1, 1, 64}), {}, {}};
    for (count i = 0; i < 64; ++i) { alone.q.at(0, 0, 0, i) = given.q.at(0, 0, rows - 1, i); }
    const results want = make_results(last);
    tilewise::reference::attention(alone.q.view(), given.k.view(), given.v.view(), want.out.view(),
                                   {.scale = which.scale, .lse = want.lse.view()});
    CHECK(first_difference(got.out.view().slice(axis::tokens, rows - 1, 1), want.out.view()) == "");
    CHECK(first_difference(got.lse.view().slice(axis::tokens, rows - 1, 1), want.lse.view()) == "");
}

TEST_CASE("memory: the plan's scratch per thread is at most 512 KiB at head_dim 128, for any lengths") {
    for (const tilewise::isa isa : tilewise::available_isas()) {
        const tilewise::isa before = tilewise::active_isa();
        tilewise::force_isa(isa);
        std::size_t largest = 0;
        for (const count length : {1, 2, 64, 127, 128, 129, 4096, 131072, 1 << 30}) {
            for (const count queries : {count{1}, count{50}, length}) {
                for (const count group : {1, 2, 8, 64}) {
                    for (const int threads : {0, 1, 2, 64}) {
                        const auto plan = plan_for({.heads = group,
                                                    .kv_heads = 1,
                                                    .queries = queries,
                                                    .keys = length,
                                                    .key_dim = 128,
                                                    .value_dim = 128,
                                                    .causal = tilewise::causal::bottom_right},
                                                   {.threads = threads});
                        largest = std::max(largest, plan.scratch_bytes_per_thread);
                    }
                }
            }
        }
        INFO("isa ", std::string(tilewise::isa_name(isa)));
        CHECK(largest <= most_scratch_per_thread);
        CHECK(largest > 0);
        tilewise::unforce_isa();
        CHECK(tilewise::active_isa() == before);
    }
}

TEST_CASE("memory: a budget makes the scratch smaller, down to that of one panel") {
    const attention_case which{.queries = 5000, .keys = 5000, .key_dim = 128, .value_dim = 128};
    const std::size_t usual = plan_for(which, {.threads = 1}).scratch_bytes_per_thread;
    const tilewise::plan smallest = plan_for(which, {.threads = 1, .scratch_budget = 1});
    CHECK(smallest.scratch_bytes_per_thread < usual);
    CHECK(smallest.block_rows == smallest.panel_rows);
    for (std::size_t budget = smallest.scratch_bytes_per_thread; budget < usual; budget += 10'000) {
        CHECK(plan_for(which, {.threads = 1, .scratch_budget = budget}).scratch_bytes_per_thread <= budget);
    }
}

TEST_CASE("memory: where the scratch cannot be had, the call throws and writes nothing") {
    const attention_case which{.queries = 300, .keys = 300};
    const inputs given = make_inputs(which);
    const all_results into(which, {0, 299});
    bool failed = false;
    {
        const tilewise::options options = into.asked_for({});
        const allocation_limit limit(1000);
        try {
            tilewise::attention(given.q.view(), given.k.view(), given.v.view(), into.out.view(), options);
        } catch (const std::bad_alloc&) { failed = true; }
    }
    CHECK(failed);
    CHECK(damage(into) == "");
}

// options::parallel_for: the same bits on the host's threads, whatever they do with the work; calls within
// calls, and calls from many threads.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "refusals.hpp"
#include "streams.hpp"
#include "thread_pool.hpp"

using namespace tilewise_tests;

namespace {

using body_function = void (*)(void*, std::size_t);

constexpr attention_case prefill{.heads = 4, .kv_heads = 2, .queries = 200, .keys = 333, .key_dim = 40};
constexpr attention_case decode{.heads = 2, .kv_heads = 1, .queries = 1, .keys = 9000, .key_dim = 64};

results run(const attention_case& which, const inputs& given, const tilewise::options& options) {
    results made = make_results(which);
    tilewise::options how = options;
    how.lse = made.lse.view();
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), made.out.view(), how);
    return made;
}

void check_host(const char* name, const tilewise::parallel_for& host) {
    for (const attention_case& which : {prefill, decode}) {
        INFO(name, ": ", show(which));
        const inputs given = make_inputs(which);
        const results want = naive(which, given);
        for (const int threads : {1, 2, 5}) {
            const results got = run(which, given, {.threads = threads, .parallel_for = host});
            CHECK(first_difference(got, want) == "");
        }
    }
}

/// A score function that calls attention itself, with the same pool.
struct inner_call {
    thread_pool* pool;
    const inputs* given;
    const results* want;
    std::atomic<int> calls = 0;
    std::atomic<int> differences = 0;

    static void call(void* context, const tilewise::score_tile& /*tile*/) noexcept {
        inner_call& self = *static_cast<inner_call*>(context);
        if (self.calls++ >= 20) { return; }
        const results got =
            run(decode, *self.given, {.threads = 3, .parallel_for = self.pool->parallel_for()});
        if (!first_difference(got.out.view(), self.want->out.view()).empty()) { ++self.differences; }
    }
};

}  // namespace

TEST_CASE("parallel_for: a pool, one thread after the other, in any order, not all, none, and too many") {
    thread_pool pool(3);
    check_host("pool", pool.parallel_for());
    CHECK(pool.calls() > 0);
    check_host("in order", {[](void*, int threads, body_function body, void* context) {
                                for (int n = 0; n < threads; ++n) {
                                    body(context, static_cast<std::size_t>(n));
                                }
                            },
                            nullptr});
    check_host("backwards", {[](void*, int threads, body_function body, void* context) {
                                 for (int n = threads; n-- > 0;) {
                                     body(context, static_cast<std::size_t>(n));
                                 }
                             },
                             nullptr});
    check_host("the last", {[](void*, int threads, body_function body, void* context) {
                                body(context, static_cast<std::size_t>(threads) - 1);
                            },
                            nullptr});
    check_host("none", {[](void*, int, body_function, void*) {}, nullptr});
    check_host("the same index from more threads than were asked for",
               {[](void*, int threads, body_function body, void* context) {
                    std::vector<std::thread> all;
                    for (int n = 0; n < threads + 3; ++n) { all.emplace_back(body, context, std::size_t{0}); }
                    for (std::thread& each : all) { each.join(); }
                },
                nullptr});
}

TEST_CASE("parallel_for: it is asked for the planned threads, and not at all for one") {
    static int asked = 0;
    asked = 0;
    const tilewise::parallel_for host{[](void* context, int threads, body_function, void*) {
                                          CHECK(context == &asked);
                                          asked = threads;
                                      },
                                      &asked};
    const inputs given = make_inputs(prefill);
    run(prefill, given, {.threads = 1, .parallel_for = host});
    CHECK(asked == 0);
    run(prefill, given, {.threads = 3, .parallel_for = host});
    CHECK(asked > 1);
    CHECK(asked <= 3);
    refuses({.parallel_for = host}, {"threads: 0 given, it must be at least 1 with parallel_for"});
}

TEST_CASE("parallel_for: a stream uses it for all of its work") {
    for (const attention_case& which : {prefill, decode}) {
        INFO(show(which));
        thread_pool pool(2);
        const inputs given = make_inputs(which);
        const row_results want = at_once(which, given, {});
        tilewise::attention_stream stream(given.q.view(), stream_sizes_of(which),
                                          {.threads = 3, .parallel_for = pool.parallel_for()});
        add_keys(stream, given, 0, which.keys);
        CHECK(pool.calls() > 0);
        const row_results got = finished(stream, which);
        CHECK(first_difference(got, want) == "");
    }
}

TEST_CASE("parallel_for: calls within calls") {
    thread_pool pool(3);
    const inputs inner_given = make_inputs(decode);
    const results inner_want = naive(decode, inner_given);
    inner_call inner{&pool, &inner_given, &inner_want};
    const inputs given = make_inputs(prefill);
    const results want = naive(prefill, given);
    const results got = run(
        prefill, given,
        {.score_function = {inner_call::call, &inner}, .threads = 4, .parallel_for = pool.parallel_for()});
    CHECK(inner.calls > 0);
    CHECK(inner.differences == 0);
    CHECK(got.out.damage_to_gaps() == "");
    CHECK(want.out.damage_to_gaps() == "");
}

TEST_CASE("parallel_for: calls from many threads share one pool") {
    thread_pool pool(2);
    const inputs given = make_inputs(prefill);
    const results want = naive(prefill, given);
    std::atomic<int> differences = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&] {
            for (int round = 0; round < 5; ++round) {
                const results got = run(prefill, given, {.threads = 3, .parallel_for = pool.parallel_for()});
                if (!first_difference(got.out.view(), want.out.view()).empty()) { ++differences; }
            }
        });
    }
    for (std::thread& caller : callers) { caller.join(); }
    CHECK(differences == 0);
}

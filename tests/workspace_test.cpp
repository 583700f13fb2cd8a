// options::workspace: the same bits in the caller's memory, whatever its size; nothing is allocated, and
// nothing outside of it is written.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "all_results.hpp"
#include "allocation_counter.hpp"
#include "cases.hpp"
#include "guarded_memory.hpp"
#include "refusals.hpp"
#include "thread_pool.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;

/// A case with everything that has a say in how much scratch there is.
struct workspace_case {
    const char* name;
    attention_case sizes;
    tilewise::options how;
    bool all_results = false;
};

constexpr std::array<count, 5> query_starts = {0, 3, 3, 200, 290};
constexpr std::array<count, 5> key_starts = {0, 40, 50, 260, 420};
constexpr std::array<count, 3> key_lengths = {500, 7, 0};

std::vector<workspace_case> make_cases() {
    using tilewise::causal;
    return {
        {"prefill",
         {.heads = 4, .kv_heads = 2, .queries = 300, .keys = 300},
         {.causal = causal::bottom_right}},
        {"decode", {.heads = 8, .kv_heads = 2, .queries = 1, .keys = 5000}, {}},
        {"heads that take turns",
         {.batch = 2, .heads = 8, .kv_heads = 4, .queries = 1, .keys = 2500, .layouts = {1, 1, 1, 0}},
         {}},
        {"key lengths",
         {.batch = 3, .heads = 2, .kv_heads = 1, .queries = 90, .keys = 500},
         {.key_lengths = key_lengths}},
        {"packed",
         {.heads = 6, .kv_heads = 3, .queries = 300, .keys = 420},
         {.causal = causal::bottom_right, .query_starts = query_starts, .key_starts = key_starts}},
        {"all results", {.heads = 2, .queries = 150, .keys = 260}, {.soft_cap = 3.0F}, true},
        {"strided",
         {.queries = 70, .keys = 300, .key_dim = 40, .value_dim = 24, .layouts = {3, 4, 5, 0}},
         {}},
    };
}

/// One case, ready to run again and again.
class runner {
public:
    explicit runner(const workspace_case& which)
        : given_(make_inputs(which.sizes)),
          into_(which.sizes, which.all_results ? std::vector<count>{0, 149} : std::vector<count>{}),
          how_(which.how),
          all_(which.all_results) {}

    [[nodiscard]] tilewise::plan plan(const tilewise::options& run) const {
        return tilewise::plan_attention(given_.q.view(), given_.k.view(), given_.v.view(), into_.out.view(),
                                        options_with(run));
    }
    void operator()(const tilewise::options& run) const {
        tilewise::attention(given_.q.view(), given_.k.view(), given_.v.view(), into_.out.view(),
                            options_with(run));
    }
    void clear() {
        for (owned_tensor* result : {&into_.out, &into_.lse, &into_.key_weights, &into_.weights}) {
            result->clear();
        }
    }
    /// Results without those that were not asked for, which hold canaries.
    [[nodiscard]] const all_results& results() const { return into_; }

private:
    [[nodiscard]] tilewise::options options_with(const tilewise::options& run) const {
        tilewise::options how = all_ ? into_.asked_for(how_) : how_;
        how.lse = into_.lse.view();
        how.threads = run.threads;
        how.scratch_budget = run.scratch_budget;
        how.workspace = run.workspace;
        how.parallel_for = run.parallel_for;
        return threaded(how);
    }

    inputs given_;
    all_results into_;
    tilewise::options how_;
    bool all_;
};

std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The least workspace of a case, from the plan that has the smallest blocks and one thread.
std::size_t least_bytes(const runner& run) {
    return run.plan({.threads = 1, .scratch_budget = 1}).scratch_bytes;
}

}  // namespace

TEST_CASE("workspace: of the size that the plan states, it is used and nothing beside it") {
    for (const workspace_case& which : make_cases()) {
        const runner want(which);
        want({.threads = 1});
        for (const int threads : {1, 3}) {
            INFO(which.name, ", threads ", threads);
            runner got(which);
            const tilewise::plan plan = got.plan({.threads = threads});
            const guarded_memory behind(round_up(plan.scratch_bytes), guard::behind);
            const guarded_memory before(round_up(plan.scratch_bytes), guard::before);
            for (const guarded_memory* memory : {&behind, &before}) {
                got.clear();
                got({.threads = threads, .workspace = {memory->data(), plan.scratch_bytes}});
                CHECK(first_difference(got.results(), want.results()) == "");
            }
        }
    }
}

TEST_CASE("workspace: with one thread, or a host's, nothing is allocated; nor is by plans") {
    thread_pool pool(2);
    for (const workspace_case& which : make_cases()) {
        for (const int threads : {1, 3}) {
            INFO(which.name, ", threads ", threads);
            const runner run(which);
            tilewise::options how{.threads = threads, .parallel_for = pool.parallel_for()};
            std::vector<std::byte> memory(run.plan(how).scratch_bytes + 63);
            how.workspace = memory;
            run(how);
            std::size_t requests = 0;
            {
                const allocation_counter counter;
                run(how);
                static_cast<void>(run.plan({.threads = threads, .parallel_for = pool.parallel_for()}));
                requests = counter.requests();
            }
            CHECK(requests == 0);
        }
    }
}

TEST_CASE("workspace: any size down to the least gives the same bits, from any address") {
    for (const workspace_case& which : make_cases()) {
        const runner want(which);
        want({.threads = 1});
        runner got(which);
        const std::size_t least = least_bytes(got);
        const std::size_t most = got.plan({.threads = 4}).scratch_bytes;
        const std::size_t step = std::max<std::size_t>((most - least) / 6, 1);
        std::vector<std::byte> memory(most + 128);
        std::byte* const aligned =
            memory.data() + (128 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
        for (std::size_t bytes = least; bytes <= most; bytes += step) {
            INFO(which.name, ", ", bytes, " bytes");
            const tilewise::options how{.threads = 4, .workspace = {aligned, bytes}};
            const tilewise::plan plan = got.plan(how);
            CHECK(plan.scratch_bytes <= bytes);
            got.clear();
            got(how);
            CHECK(first_difference(got.results(), want.results()) == "");
        }
        for (const std::size_t offset : {1U, 8U, 63U}) {
            got.clear();
            got({.threads = 1, .workspace = {aligned - 64 + offset, least + 64 - offset}});
            CHECK(first_difference(got.results(), want.results()) == "");
        }
    }
}

TEST_CASE("workspace: below the least it is refused, with the size needed, and nothing is written") {
    for (const workspace_case& which : make_cases()) {
        INFO(which.name);
        runner run(which);
        const std::size_t least = least_bytes(run);
        const guarded_memory memory(round_up(least), guard::before);
        std::memset(memory.data(), 0x5a, least);
        run.clear();
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, least - 1}) {
            for (const int threads : {1, 4}) {
                const std::string message = refusal_of([&] {
                    run({.threads = threads, .workspace = {memory.data(), bytes}});
                });
                CHECK(message == "tilewise: workspace: " + std::to_string(bytes) +
                                     " bytes from the first multiple of 64 on given, it must be at least " +
                                     std::to_string(least));
            }
        }
        CHECK(run.results().out.damage() == "");
        CHECK(std::all_of(memory.data(), memory.data() + least,
                          [](std::byte b) { return b == std::byte{0x5a}; }));
    }
}

TEST_CASE("workspace: it overlaps no tensor, and null data has no bytes") {
    const inputs given = make_inputs(refused_sizes);
    const results into = make_results(refused_sizes);
    const auto bytes_of = [](const owned_tensor& of) {
        return std::span(static_cast<std::byte*>(of.view().data), 8);
    };
    refuses(given, into.out, {.workspace = bytes_of(given.k)}, {"workspace: its memory overlaps that of k"});
    refuses(given, into.out, {.workspace = bytes_of(into.out)},
            {"workspace: its memory overlaps that of out"});
    refuses(given, into.out, {.lse = into.lse.view(), .workspace = bytes_of(into.lse)},
            {"workspace: its memory overlaps that of lse"});
    refuses(given, into.out, {.workspace = {static_cast<std::byte*>(nullptr), 8}},
            {"workspace: null data given, it has 8 bytes"});
}

TEST_CASE("workspace: the least there can be is as README has it") {
    struct shape {
        attention_case sizes;
        std::size_t most_bytes;
    };
    const shape shapes[] = {
        {{.queries = 4096, .keys = 4096}, 63 * 1024},
        {{.queries = 4096, .keys = 4096, .key_dim = 128, .value_dim = 128}, 94 * 1024},
        {{.heads = 32, .kv_heads = 8, .queries = 1, .keys = 10'000, .key_dim = 128, .value_dim = 128},
         96 * 1024},
    };
    for (const shape& each : shapes) {
        const runner run({"", each.sizes, {}});
        INFO(show(each.sizes), ": ", least_bytes(run), " of ", run.plan({.threads = 1}).scratch_bytes);
        CHECK(least_bytes(run) <= each.most_bytes);
        CHECK(least_bytes(run) <= run.plan({.threads = 1}).scratch_bytes);
    }
}

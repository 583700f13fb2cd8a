// Load: thousands of calls at once, from many threads, from inside parallel regions, after fork, on more
// threads than there are cores.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "child.hpp"
#include "mask_cases.hpp"

using namespace tilewise_tests;

// OpenMP, as the library has it. Not there if it was built without.
extern "C" {
__attribute__((weak)) void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
__attribute__((weak)) void omp_set_max_active_levels(int levels);
__attribute__((weak)) int omp_get_max_active_levels();
}

namespace {

using count = std::int64_t;

/// A call, and what it must give.
struct job {
    mask_case masks;
    inputs given;
    all_results want;

    [[nodiscard]] bool gives_the_same(int threads) const {
        tilewise::options how = masks.how;
        how.threads = threads;
        return first_difference(attend(masks.sizes, given, how, want.rows), want).empty();
    }
};

job make_job(random_source& random) {
    attention_case sizes;
    sizes.kv_heads = random.between(1, 2);
    sizes.heads = sizes.kv_heads * random.between(1, 3);
    sizes.queries = random.between(1, 60);
    sizes.keys = random.between(1, 300);
    sizes.key_dim = random.between(1, 24);
    sizes.value_dim = random.between(1, 24);
    sizes.seed = random.bits();
    job made{random_masks(random, sizes), make_inputs(sizes), all_results(sizes, {0})};
    made.want = attend(sizes, made.given, made.masks.how, {0});
    return made;
}

std::vector<job> make_jobs(std::size_t how_many) {
    random_source random(77);
    std::vector<job> jobs;
    while (jobs.size() < how_many) { jobs.push_back(make_job(random)); }
    return jobs;
}

/// Enough work for seven threads.
const attention_case large{.heads = 2, .queries = 200, .keys = 500, .key_dim = 64, .value_dim = 64};

void expect_large(std::atomic<int>& wrong, const inputs& given, const results& want, int threads) {
    const results got = tiled(large, given, {.threads = threads});
    if (!first_difference(got.out.view(), want.out.view()).empty()) { ++wrong; }
}

}  // namespace

TEST_CASE("load: thousands of different calls from 16 threads at once") {
    const std::vector<job> jobs = make_jobs(60);
    const auto calls = static_cast<std::size_t>(by_effort(400, 1000, 6000));
    std::atomic<std::size_t> next = 0;
    std::atomic<int> wrong = 0;
    const auto work = [&] {
        for (std::size_t n = next++; n < calls; n = next++) {
            if (!jobs[n % jobs.size()].gives_the_same(static_cast<int>(n % 3))) { ++wrong; }
        }
    };
    std::vector<std::thread> pool;
    for (int thread = 0; thread < 16; ++thread) { pool.emplace_back(work); }
    for (std::thread& thread : pool) { thread.join(); }
    CHECK(wrong == 0);
    MESSAGE(calls, " calls");
}

TEST_CASE("load: more threads than cores, and more than tasks") {
    const inputs given = make_inputs(large);
    const results want = naive(large, given);
    std::atomic<int> wrong = 0;
    for (const int threads : {8, 64, 1000}) { expect_large(wrong, given, want, threads); }
    std::vector<std::thread> pool;
    for (int thread = 0; thread < 4; ++thread) {
        pool.emplace_back([&] {
            for (count n = 0; n < by_effort(1, 2, 6); ++n) { expect_large(wrong, given, want, 8); }
        });
    }
    for (std::thread& thread : pool) { thread.join(); }
    CHECK(wrong == 0);
}

TEST_CASE("load: calls from inside a parallel region, with and without nested ones") {
    if (GOMP_parallel == nullptr) { return; }
    struct shared {
        inputs given = make_inputs(large);
        results want = naive(large, given);
        std::atomic<int> wrong = 0;
        std::atomic<int> calls = 0;
    } all;
    const auto body = [](void* data) {
        auto& to = *static_cast<shared*>(data);
        expect_large(to.wrong, to.given, to.want, 3);
        ++to.calls;
    };
    const int levels = omp_get_max_active_levels();
    for (const int allowed : {1, 3}) {
        omp_set_max_active_levels(allowed);
        GOMP_parallel(body, &all, 3, 0);
    }
    omp_set_max_active_levels(levels);
    CHECK(all.calls == 6);
    CHECK(all.wrong == 0);
}

TEST_CASE("load: a forked child computes, and so does its parent after it") {
    // Emulators do not fork programs that have threads.
    if (test_effort() == effort::quick) { return; }
    const inputs given = make_inputs(large);
    const results want = naive(large, given);
    std::atomic<int> wrong = 0;
    expect_large(wrong, given, want, 3);  // OpenMP has started its threads
    for (const int threads : {1, 3}) {
        const bool done = succeeds_in_child([&] {
            std::atomic<int> wrong_in_child = 0;
            expect_large(wrong_in_child, given, want, threads);
            std::thread other([&] { expect_large(wrong_in_child, given, want, threads); });
            other.join();
            return wrong_in_child == 0;
        });
        CHECK(done);
        expect_large(wrong, given, want, threads);
    }
    CHECK(wrong == 0);
}

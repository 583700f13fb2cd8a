// With a workspace and one thread, a call makes no system call: it runs where Linux allows none.

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <span>
#include <vector>

#include <tilewise/kv_cache.hpp>
#include <tilewise/rotary.hpp>

#include "allocation_counter.hpp"
#include "cases.hpp"

#if defined(__linux__)
#    include <linux/seccomp.h>
#    include <sys/prctl.h>
#    include <sys/syscall.h>
#    include <sys/wait.h>
#    include <unistd.h>
#    include <csignal>
#endif

using namespace tilewise_tests;

#if defined(__linux__)
namespace {

constexpr int forbidding_failed = 3;

/// Ends the process, with what is allowed in strict mode: _exit ends all threads, which is not.
[[noreturn]] void leave(int code) {
    syscall(SYS_exit, code);
    std::raise(SIGKILL);
    std::abort();
}

/// In a child process that is killed at its first system call but read, write and exit.
int status_of_child(void (*run)(void* context), void* context) {
    const pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) { leave(forbidding_failed); }
        run(context);
        leave(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status;
}

struct quiet_call {
    const inputs& given;
    const results& into;
    tilewise::options how;

    static void run(void* context) {
        const quiet_call& c = *static_cast<quiet_call*>(context);
        tilewise::attention(c.given.q.view(), c.given.k.view(), c.given.v.view(), c.into.out.view(), c.how);
    }
};

/// A token on its way: turned, appended, attended from.
struct quiet_step {
    tilewise::kv_cache& cache;
    std::span<const int> sequence;
    const inputs& given;
    const results& into;
    tilewise::options how;

    static void run(void* context) {
        const quiet_step& s = *static_cast<quiet_step*>(context);
        tilewise::rotary_embedding(s.given.q.view(), {.first_position = 300});
        tilewise::rotary_embedding(s.given.k.view(), {.first_position = 300});
        s.cache.append(s.sequence[0], s.given.k.view(), s.given.v.view());
        s.cache.attention(s.sequence, s.given.q.view(), s.into.out.view(), s.how);
    }
};

}  // namespace

TEST_CASE("workspace: with one thread, no system call is made") {
    const int status_of_nothing = status_of_child([](void*) {}, nullptr);
    if (status_of_nothing != 0) { return; }  // this system, or its emulator, cannot forbid them
    // The test can fail.
    CHECK(WIFSIGNALED(status_of_child([](void*) { static_cast<void>(getppid()); }, nullptr)));
    constexpr std::int64_t starts[] = {0, 20, 100};
    for (const bool is_packed : {false, true}) {
        const attention_case which{.heads = 2, .queries = 100, .keys = 100};
        const inputs given = make_inputs(which);
        const results into = make_results(which);
        quiet_call call{given, into, {.lse = into.lse.view(), .threads = 1}};
        if (is_packed) { call.how.query_starts = call.how.key_starts = starts; }
        std::vector<std::byte> memory(tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(),
                                                               into.out.view(), call.how)
                                          .scratch_bytes +
                                      63);
        call.how.workspace = memory;
        CHECK(status_of_child(quiet_call::run, &call) == 0);
    }
}

TEST_CASE("workspace: nor is one, or any memory asked for, in a decode step with a cache") {
    const attention_case which{.heads = 4, .kv_heads = 2, .queries = 1, .keys = 1};
    const inputs given = make_inputs(which);
    const results into = make_results(which);
    for (const auto type : {tilewise::element_type::f32, tilewise::element_type::q8_0}) {
        tilewise::kv_cache cache({.kv_heads = 2,
                                  .head_dim = which.key_dim,
                                  .value_dim = which.value_dim,
                                  .k_type = type,
                                  .v_type = type,
                                  .pages = 4});
        const std::array sequence = {cache.add()};
        for (int t = 0; t < 300; ++t) { cache.append(sequence[0], given.k.view(), given.v.view()); }
        quiet_step step{cache, sequence, given, into, {.threads = 1}};
        std::vector<std::byte> memory(
            cache.plan_attention(sequence, given.q.view(), into.out.view(), step.how).scratch_bytes + 63);
        step.how.workspace = memory;
        {
            const allocation_counter counter;
            quiet_step::run(&step);
            CHECK(counter.requests() == 0);
        }
        if (status_of_child([](void*) {}, nullptr) != 0) { continue; }  // as above
        CHECK(status_of_child(quiet_step::run, &step) == 0);
    }
}
#endif

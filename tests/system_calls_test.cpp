// With a workspace and one thread, a call makes no system call: it runs where Linux allows none.

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

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
#endif

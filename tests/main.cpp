// The test program. CTest runs it once per instruction set, with TILEWISE_ISA and TILEWISE_TEST_EXPECT_ISA
// naming it: exit code 77 (skip) if this machine lacks it, failure if the library would run another one or
// if no test case ran.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "isa_probe.hpp"
#include "support.hpp"

namespace {

constexpr int exit_code_skip = 77;

unsigned test_cases_run = 0;

// Listens to doctest for the number of test cases that ran.
struct run_counter final : doctest::IReporter {
    explicit run_counter(const doctest::ContextOptions& /*options*/) {}
    void report_query(const doctest::QueryData& /*query*/) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats& stats) override {
        test_cases_run = stats.numTestCasesPassingFilters;
    }
    void test_case_start(const doctest::TestCaseData& /*test*/) override {}
    void test_case_reenter(const doctest::TestCaseData& /*test*/) override {}
    void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
    void test_case_exception(const doctest::TestCaseException& /*error*/) override {}
    void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData& /*assertion*/) override {}
    void log_message(const doctest::MessageData& /*message*/) override {}
    void test_case_skipped(const doctest::TestCaseData& /*test*/) override {}
};
REGISTER_LISTENER("run_counter", 1, run_counter);

// 0 if the tests may run, else the exit code.
int check_expected_isa() {
    const char* expected = std::getenv("TILEWISE_TEST_EXPECT_ISA");
    if (expected == nullptr) { return 0; }
    const tilewise::isa wanted = tilewise::isa_from_name(expected);
    const auto available = tilewise::available_isas();
    if (std::find(available.begin(), available.end(), wanted) == available.end()) {
        std::printf("skipped: this machine or this build lacks %s\n", expected);
        return exit_code_skip;
    }
    if (tilewise::active_isa() != wanted) {
        const std::string active(tilewise::isa_name(tilewise::active_isa()));
        std::printf("failed: %s was expected to run, but %s does\n", expected, active.c_str());
        return EXIT_FAILURE;
    }
    return 0;
}

int run(int count, char** arguments) {
    tilewise_tests::probe_isa_environment();
    if (const int code = check_expected_isa(); code != 0) { return code; }

    doctest::Context context;
    context.applyCommandLine(count, arguments);
    const int failures = context.run();
    if (context.shouldExit()) { return failures; }
    if (test_cases_run == 0) {
        std::printf("failed: no test case ran\n");
        return EXIT_FAILURE;
    }
    const std::string active(tilewise::isa_name(tilewise::active_isa()));
    std::printf("%u test cases ran on %s\n", test_cases_run, active.c_str());
    return failures;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count, arguments);
    } catch (const std::exception& error) {
        std::printf("failed: %s\n", error.what());
        return EXIT_FAILURE;
    }
}

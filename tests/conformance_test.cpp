// Test vectors of others for the ONNX Attention operator: those of ONNX itself, and those of runtimes in the
// operator's terms. They are not part of this repository; without them there is nothing to test.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "conformance_case.hpp"

namespace tilewise_tests {

namespace {

/// What is wrong with a case's results, in words, or nothing. Every case can be expressed: none is left out.
std::string check(const std::filesystem::path& folder) {
    try {
        return run_case(read_case(folder));
    } catch (const std::exception& error) { return error.what(); }
}

/// `least` is how many cases there must be, so that a folder that lost some is noticed.
void check_all(const std::string& set, std::size_t least) {
    const std::filesystem::path folder = std::filesystem::path(TILEWISE_CONFORMANCE_DATA) / set;
    if (!std::filesystem::exists(TILEWISE_CONFORMANCE_DATA)) {
        std::printf("skipped: no test vectors in '%s', see TILEWISE_CONFORMANCE_DATA\n", folder.c_str());
        return;
    }
    std::size_t passed = 0;
    const std::vector<std::string> names = case_names(folder);
    for (const std::string& name : names) {
        const std::string wrong = check(folder / name);
        passed += wrong.empty() ? 1 : 0;
        CHECK_MESSAGE(wrong.empty(), name << ": " << wrong);
    }
    CHECK(names.size() >= least);
    std::printf("%s: %zu of %zu test vectors passed\n", set.c_str(), passed, names.size());
}

}  // namespace

TEST_CASE("conformance: test vectors of ONNX") { check_all("onnx", 53); }

TEST_CASE("conformance: test vectors of runtimes") { check_all("others", 223); }

}  // namespace tilewise_tests

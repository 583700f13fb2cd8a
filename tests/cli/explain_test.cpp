// tilewise explain and info: the numbers that a reader sees.

#include <doctest/doctest.h>

#include <regex>
#include <sstream>
#include <string>

#include "program.hpp"

using tilewise_tests::finished;
using tilewise_tests::tilewise;

namespace {

/// Whether a line names `what` first and ends its bracket with these numbers.
bool has_row(const std::string& text, const std::string& what, const std::string& a, const std::string& b) {
    return std::regex_search(text, std::regex("\n  " + what + " *\\[ *" + a + " +" + b + " \\]"));
}

/// The same on the line below the one that `what` names.
bool has_second_row(const std::string& text, const std::string& what, const std::string& a,
                    const std::string& b) {
    return std::regex_search(text, std::regex("\n  " + what + "[^\n]*\n *\\[ *" + a + " +" + b + " \\]"));
}

}  // namespace

TEST_CASE("explain shows the textbook's example") {
    const finished run = tilewise({"explain"});
    REQUIRE(run.exit_code == 0);
    CHECK(has_row(run.text, "scores  Q K\\^T", "1\\.0000", "1\\.0000"));
    CHECK(has_second_row(run.text, "scores  Q K\\^T", "0\\.0000", "1\\.0000"));
    CHECK(has_second_row(run.text, "scaled  / sqrt\\(2\\)", "0\\.0000", "0\\.7071"));
    CHECK(has_row(run.text, "weights softmax of rows", "0\\.5000", "0\\.5000"));
    CHECK(has_second_row(run.text, "weights softmax of rows", "0\\.3302", "0\\.6698"));
    CHECK(has_row(run.text, "output  weights V", "2\\.0000", "3\\.0000"));
    CHECK(has_second_row(run.text, "output  weights V", "2\\.3395", "3\\.3395"));
}

TEST_CASE("explain goes tile by tile and gets the library's bits") {
    const std::string text = tilewise({"explain"}).text;
    // tile, score, m, rescale, weight, l, o
    CHECK(std::regex_search(text,
                            std::regex("\n +1 +0\\.0000 +0 +- +1\\.0000 +1\\.0000 +1\\.0000 +2\\.0000\n")));
    CHECK(std::regex_search(
        text, std::regex("\n +2 +1\\.0201 +2 +0\\.2500 +0\\.5070 +0\\.7570 +1\\.7711 +2\\.5281\n")));
    std::smatch tiled;
    std::smatch whole;
    REQUIRE(std::regex_search(text, tiled, std::regex("output = o / l .*bits ([0-9a-f]{8} [0-9a-f]{8})")));
    REQUIRE(std::regex_search(text, whole,
                              std::regex("one call .*bits ([0-9a-f]{8} [0-9a-f]{8})  the same bits")));
    CHECK(tiled[1] == whole[1]);
}

TEST_CASE("explain masks, and shows what a mask of 0 leaks") {
    const std::string text = tilewise({"explain"}).text;
    CHECK(has_row(text, "weights, causal", "1\\.0000", "0\\.0000"));
    CHECK(has_row(text, "output, causal", "1\\.0000", "2\\.0000"));
    CHECK(has_second_row(text, "output, causal", "2\\.3395", "3\\.3395"));
    CHECK(has_row(text, "weights, masked with 0", "0\\.6698", "0\\.3302"));
    CHECK(has_row(text, "output, masked with 0", "1\\.6605", "2\\.6605"));
}

TEST_CASE("explain measures why scores are scaled") {
    const std::string text = tilewise({"explain"}).text;
    std::smatch row;
    REQUIRE(std::regex_search(text, row, std::regex("\n +64 +([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+)\n")));
    // The variance of 20,000 scores is off by 1 % (one standard deviation).
    CHECK(std::stod(row[1]) == doctest::Approx(64).epsilon(0.05));
    CHECK(std::stod(row[2]) == doctest::Approx(1).epsilon(0.05));
    CHECK(std::stod(row[3]) > 0.6);
    CHECK(std::stod(row[4]) < 0.15);
}

TEST_CASE("explain fits a terminal of 80 columns, and says the same on every instruction set") {
    const std::string text = tilewise({"explain"}).text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
    for (const char* isa : {"sse2", "avx2", "avx512", "neon"}) {
        const finished run = tilewise({"explain", "--isa", isa});
        if (run.exit_code == 0) {
            CHECK(run.text == text);
        } else {
            CHECK(run.exit_code == 2);
        }
    }
}

TEST_CASE("info names and measures the machine") {
    const finished run = tilewise({"info"});
    REQUIRE(run.exit_code == 0);
    CHECK(std::regex_search(run.text, std::regex("\nthreads +[1-9]")));
    CHECK(std::regex_search(run.text, std::regex("\n  (sse2|neon) +[1-9][0-9.]* and [1-9][0-9.]* GFLOP/s")));
    CHECK(std::regex_search(run.text, std::regex("GFLOP/s.*<- active\n")));
    CHECK(std::regex_search(run.text, std::regex("\n  1 thread +[0-9.]+ GB/s\n")));
}

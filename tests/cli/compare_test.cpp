// tilewise compare: the fields of its JSON, what it leaves out, and what it says to wrong arguments.

#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.hpp"
#include "text.hpp"

using namespace tilewise_tests;
using nlohmann::json;

namespace {

/// Runs a tiny comparison and returns its JSON.
json compare(std::vector<std::string> arguments) {
    const temporary_directory directory;
    arguments.insert(arguments.begin(), "compare");
    arguments.insert(arguments.end(), {"--json", directory.path("c.json"), "--seconds", "0"});
    const finished run = tilewise_tests::tilewise(arguments);
    CAPTURE(run.text);
    REQUIRE(run.exit_code == 0);
    CHECK(directory.files() == std::vector<std::string>{"c.json"});
    return json::parse(read_file(directory.path("c.json")));
}

void check_side(const json& row, const std::string& name) {
    for (const char* field : {"_cpu_seconds", "_wall_seconds", "_gflops", "_fraction_of_peak"}) {
        CAPTURE(name + field);
        CHECK(row.at(name + field).get<double>() > 0);
    }
    const double peak = row.at("fma_peak_gflops").get<double>() * row.at("threads").get<double>();
    CHECK(row.at(name + "_fraction_of_peak").get<double>() ==
          doctest::Approx(row.at(name + "_gflops").get<double>() / peak));
    CHECK(row.at(name + "_scratch_bytes").get<std::int64_t>() > 0);
    CHECK(row.at(name + "_peak_rss_bytes").get<std::int64_t>() > 0);
}

/// Runs with wrong arguments: exit code 2, and a message that has `what` in it.
void check_usage_error(std::vector<std::string> arguments, const std::string& what) {
    const finished run = tilewise_tests::tilewise(arguments);
    CAPTURE(run.text);
    CHECK(run.exit_code == 2);
    CHECK(run.text.rfind("tilewise: ", 0) == 0);
    CHECK(run.text.find(what) != std::string::npos);
}

}  // namespace

TEST_CASE("compare writes what it measured as JSON") {
    const json result = compare({"--tokens", "64,128", "--heads", "4", "--kv-heads", "2", "--head-dim", "16",
                                 "--causal", "--threads", "1"});
    CHECK(!result.at("machine").at("cpu").get<std::string>().empty());
    CHECK(!result.at("machine").at("isa").get<std::string>().empty());
    CHECK(result.at("machine").at("threads") == 1);
    CHECK(result.at("machine").at("fma_peak_gflops").get<double>() > 0);
    CHECK(result.at("machine").at("read_gbps").get<double>() > 0);
    REQUIRE(result.at("rows").size() == 2);
    for (const json& row : result.at("rows")) {
        CHECK(row.at("input") == "random");
        CHECK(row.at("heads") == 4);
        CHECK(row.at("kv_heads") == 2);
        CHECK(row.at("head_dim") == 16);
        CHECK(row.at("causal") == true);
        CHECK(row.at("threads") == 1);
        CHECK(row.at("isa") == result.at("machine").at("isa"));
        check_side(row, "tiled");
        check_side(row, "naive");
        CHECK(row.at("bits_equal") == true);
        CHECK(row.at("tokens_checked") == row.at("tokens"));
        CHECK(row.at("max_abs_difference_float64").get<double>() < 2e-6);
        CHECK(row.at("naive_max_abs_difference_float64").get<double>() < 2e-6);
    }
    CHECK(result.at("rows")[0].at("tokens") == 64);
    CHECK(result.at("rows")[1].at("tokens") == 128);
}

TEST_CASE("compare's output is the same on every instruction set, whatever multiplies for naive") {
    std::string fingerprint;
    for (const char* isa : {"sse2", "avx2", "avx512", "neon"}) {
        if (tilewise_tests::tilewise({"explain", "--isa", isa}).exit_code != 0) { continue; }
        const json row = compare({"--tokens", "200", "--heads", "2", "--kv-heads", "1", "--head-dim", "24",
                                  "--isa", isa, "--naive", "loops"})
                             .at("rows")[0];
        CHECK(row.at("isa") == isa);
        CHECK(row.at("bits_equal") == true);
        CHECK(row.at("naive_max_abs_difference_float64").get<double>() < 2e-6);
        if (fingerprint.empty()) { fingerprint = row.at("output_fingerprint"); }
        CHECK(row.at("output_fingerprint") == fingerprint);
    }
    CHECK(!fingerprint.empty());
}

TEST_CASE("compare skips a naive run that does not fit, and leaves out an input that does not") {
    const json result = compare(
        {"--tokens", "1536,32m", "--heads", "1", "--kv-heads", "1", "--head-dim", "8", "--memory", "24m"});
    REQUIRE(result.at("rows").size() == 1);
    const json& row = result.at("rows")[0];
    check_side(row, "tiled");
    for (const char* field : {"naive_cpu_seconds", "naive_wall_seconds", "naive_gflops",
                              "naive_fraction_of_peak", "naive_scratch_bytes", "naive_peak_rss_bytes"}) {
        CAPTURE(field);
        CHECK(row.at(field).is_null());
    }
    CHECK(row.at("naive_needs_bytes").get<std::int64_t>() >= 4 * 1536 * 1536);
    CHECK(row.at("bits_equal") == true);
}

TEST_CASE("compare draws a plot, or says what is missing") {
    const temporary_directory directory;
    const std::vector<std::string> arguments = {"compare",
                                                "--tokens",
                                                "32,64",
                                                "--heads",
                                                "1",
                                                "--kv-heads",
                                                "1",
                                                "--head-dim",
                                                "8",
                                                "--seconds",
                                                "0",
                                                "--plot",
                                                directory.path("a 'b'.svg")};
    const finished run = tilewise_tests::tilewise(arguments);
    CAPTURE(run.text);
    if (run.exit_code == 0) {
        CHECK(read_file(directory.path("a 'b'.svg")).find("<svg") != std::string::npos);
        CHECK(directory.files() == std::vector<std::string>{"a 'b'.svg"});
    } else {
        CHECK(run.text.find("gnuplot is not installed") != std::string::npos);
    }
    const char* found = std::getenv("PATH");
    const std::string path = found == nullptr ? "" : found;
    setenv("PATH", "/nowhere", 1);
    const finished without = tilewise_tests::tilewise(arguments);
    setenv("PATH", path.c_str(), 1);
    CHECK(without.exit_code == 1);
    CHECK(without.text.find("gnuplot is not installed") != std::string::npos);
}

TEST_CASE("wrong arguments are named, with what was given and what is allowed") {
    check_usage_error({}, "subcommand");
    check_usage_error({"compare", "--frobnicate"}, "--frobnicate");
    for (const char* lengths :
         {"", ",", "1k,", "0", "-1", "1x", "1kk", "k", "1.5k", "99999999999999999999", "2000000m"}) {
        check_usage_error({"compare", "--tokens", lengths}, "--tokens: '");
    }
    check_usage_error({"compare", "--heads", "0"}, "--heads: Value 0 not in range");
    check_usage_error({"compare", "--heads", "9", "--kv-heads", "2"}, "--heads: 9 given with --kv-heads 2");
    check_usage_error({"compare", "--threads", "-1"}, "--threads");
    check_usage_error({"compare", "--isa", "mmx"}, "--isa: isa: 'mmx' given");
    check_usage_error({"compare", "--plot", "plot.pdf"},
                      "--plot: 'plot.pdf' given; the name must end in .svg or .png");
    check_usage_error({"compare", "--memory", "1x"}, "--memory");
    CHECK(tilewise_tests::tilewise({"compare", "--json", "/nowhere/c.json"}).exit_code == 1);
    CHECK(tilewise_tests::tilewise({"--help"}).exit_code == 0);
    CHECK(tilewise_tests::tilewise({"compare", "--help"}).text.find("--head-dim") != std::string::npos);
    CHECK(tilewise_tests::tilewise({"--version"}).text.rfind("tilewise ", 0) == 0);
}

TEST_CASE("lengths, and numbers for people") {
    using namespace ::tilewise::cli;
    CHECK(parse_lengths("--tokens", "1k,4K,16k,300,1m") ==
          std::vector<std::int64_t>{1024, 4096, 16384, 300, 1048576});
    CHECK(format_seconds(1.234) == "1.23 s");
    CHECK(format_seconds(0.0345) == "34.5 ms");
    CHECK(format_seconds(0.9999) == "1.00 s");
    CHECK(format_seconds(6.78e-6) == "6.78 us");
    CHECK(format_seconds(123.4) == "123 s");
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1000) == "1000 B");
    CHECK(format_bytes(512 << 10) == "512 KiB");
    CHECK(format_bytes(1536 << 10) == "1.5 MiB");
    CHECK(format_bytes(std::size_t{1} << 36) == "64 GiB");
    CHECK(format_count(5) == "5");
    CHECK(format_count(1234567) == "1,234,567");
    CHECK(format_percent(0.874) == "87 %");
    CHECK(format_scientific(0) == "0");
}

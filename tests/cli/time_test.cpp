// tilewise time: its lines of JSON, its output in every storage type, and its errors.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"

using namespace tilewise_tests;
using nlohmann::json;

namespace {

/// 2 query heads, 1 key head, 3 queries, 40 keys, head_dim 32, as files q, k and v.
class files {
public:
    files() {
        write("q", {1, 2, 3, 32});
        write("k", {1, 1, 40, 32});
        write("v", {1, 1, 40, 32});
    }

    [[nodiscard]] finished time(const std::vector<std::string>& more) const {
        std::vector<std::string> arguments = {"time", "--repeat", "2", "--threads", "1"};
        for (const char* name : {"q", "k", "v"}) {
            arguments.push_back(std::string("--") + name);
            arguments.push_back(directory_.path(std::string(name) + ".npy"));
        }
        arguments.insert(arguments.end(), {"--out", directory_.path("o.npy")});
        arguments.insert(arguments.end(), more.begin(), more.end());
        return tilewise_tests::tilewise(arguments);
    }

    [[nodiscard]] std::vector<float> output() const {
        return read_f32(directory_.path("o.npy"), {1, 2, 3, 32});
    }

private:
    void write(const std::string& name, const std::vector<std::int64_t>& shape) {
        std::vector<float> values(static_cast<std::size_t>(shape[1] * shape[2] * shape[3]));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = std::sin(0.7F * static_cast<float>(i) + static_cast<float>(name[0]));
        }
        write_file(directory_.path(name + ".npy"), npy_bytes("<f4", shape, bytes_of(values)));
    }

    temporary_directory directory_;
};

std::vector<json> lines_of(const finished& run) {
    CAPTURE(run.text);
    REQUIRE(run.exit_code == 0);
    std::vector<json> lines;
    std::istringstream text(run.text);
    for (std::string line; std::getline(text, line);) { lines.push_back(json::parse(line)); }
    return lines;
}

}  // namespace

TEST_CASE("time prints what a call is, then a line for each") {
    const files given;
    const std::vector<json> lines = lines_of(given.time({"--causal"}));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].at("threads") == 1);
    CHECK(lines[0].at("arithmetic") == "exact");
    // Queries see 38, 39 and 40 keys.
    CHECK(lines[0].at("flops") == 2 * (38 + 39 + 40) * 4 * 32);
    CHECK(lines[0].at("bytes") == 4 * 32 * (6 + 40 + 40 + 6));
    for (std::size_t i = 1; i < lines.size(); ++i) {
        CHECK(lines[i].at("calls") == 1);
        for (const char* field :
             {"wall_seconds", "cpu_seconds", "peak_gflops", "read_gbps", "least_seconds"}) {
            CHECK(lines[i].at(field).get<double>() > 0);
        }
    }
}

TEST_CASE("time computes the same as the naive formulation, in every storage type") {
    const files given;
    lines_of(given.time({"--naive", "loops"}));
    const std::vector<float> naive = given.output();
    struct precision {
        const char* type;
        float error;
    };
    for (const precision p :
         {precision{"f32", 1e-5F}, {"f16", 2e-3F}, {"bf16", 2e-2F}, {"q8_0", 2e-2F}, {"q4_0", 0.2F}}) {
        CAPTURE(p.type);
        lines_of(given.time({"--kv-type", p.type}));
        const std::vector<float> out = given.output();
        float largest = 0;
        for (std::size_t i = 0; i < out.size(); ++i) {
            largest = std::max(largest, std::abs(out[i] - naive[i]));
        }
        CHECK(largest <= p.error);
        CHECK((largest > 1e-6F) == (std::string(p.type) != "f32"));
    }
}

TEST_CASE("time without requests prints what a call is") {
    CHECK(lines_of(files().time({"--on-request"})).size() == 1);
}

TEST_CASE("time refuses unknown types") {
    const finished run = files().time({"--kv-type", "f8"});
    CHECK(run.exit_code == 2);
    CHECK(run.text.find("--kv-type") != std::string::npos);
}

TEST_CASE("time says which arithmetic a call gets") {
    const files given;
    const std::vector<std::string> in_bf16 = {"--arithmetic", "fastest",   "--type",
                                              "bf16",         "--kv-type", "bf16"};
    const std::vector<json> fastest = lines_of(given.time(in_bf16));
    const std::string name = fastest[0].at("arithmetic");
    CHECK((name == "fastest" || name == "exact"));
    CHECK(fastest[1].at("peak_gflops").get<double>() > 0);
    CHECK(lines_of(given.time({"--arithmetic", "fastest"}))[0].at("arithmetic") == "exact");
    CHECK(given.time({"--arithmetic", "fast"}).exit_code != 0);
}

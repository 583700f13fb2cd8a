// tilewise accuracy: a line for every storage type, with errors of the size that the type must have.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"

using namespace tilewise_tests;

namespace {

constexpr int tokens = 48;

void write_tensor(const temporary_directory& to, const std::string& name, std::int64_t heads,
                  std::int64_t dim) {
    const std::vector<std::int64_t> shape = {1, heads, tokens, dim};
    std::vector<float> values(static_cast<std::size_t>(heads * tokens * dim));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 2.0F * std::sin(0.7F * static_cast<float>(i) + static_cast<float>(name.back()));
    }
    write_file(to.path(name + ".npy"), npy_bytes("<f4", shape, bytes_of(values)));
}

/// 2 query heads and 1 key head, for both layers.
void write_layers(const temporary_directory& to, std::int64_t dim) {
    for (const std::string layer : {"early", "late"}) {
        write_tensor(to, layer + "_q", 2, dim);
        write_tensor(to, layer + "_k", 1, dim);
        write_tensor(to, layer + "_v", 1, dim);
    }
}

finished run_on(const temporary_directory& data) {
    return tilewise_tests::tilewise({"accuracy", "--threads", "1", "--data", data.path("")});
}

/// The mean square of the first layer by what stands before it, such as "k, v in q8_0 f32 exact" for an error
/// or "k, v in q8_0" for what storing changed.
std::map<std::string, double> mean_squares(const std::string& text) {
    std::map<std::string, double> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.find("k, v in ") > 3) { continue; }
        std::istringstream words(line);
        std::vector<std::string> all;
        for (std::string word; words >> word;) { all.push_back(word); }
        std::string name = all[0];
        for (std::size_t n = 1; n + 3 < all.size(); ++n) { name += " " + all[n]; }
        found.emplace(name, std::stod(all[all.size() - 3]));
    }
    return found;
}

}  // namespace

TEST_CASE("accuracy has every storage type, with errors of its size") {
    const temporary_directory data;
    write_layers(data, 32);
    const finished run = run_on(data);
    CAPTURE(run.text);
    REQUIRE(run.exit_code == 0);
    const std::map<std::string, double> found = mean_squares(run.text);
    const auto is_between = [&](const std::string& name, double least, double most) {
        CAPTURE(name);
        REQUIRE(found.count(name) == 1);
        CHECK(found.at(name) >= least);
        CHECK(found.at(name) <= most);
    };
    for (const char* stored :
         {"q, k, v in f32", "q, k, v in f16", "q, k, v in bf16", "k, v in i8 per token",
          "k, v in i8 per channel", "k, v in q8_0", "k, v in q4_0", "k, v in e4m3", "k, v in e5m2"}) {
        is_between(std::string(stored) + " f32 exact", 1e-8, 2e-6);
    }
    is_between("q, k, v in f16 f16 exact", 5e-5, 5e-4);
    is_between("q, k, v in bf16 bf16 exact", 5e-4, 4e-3);
    if (found.count("q, k, v in bf16 f32 fastest") != 0) {
        is_between("q, k, v in bf16 f32 fastest", 1e-4, 4e-3);
    }
    is_between("q, k, v in f32", 0, 0);
    is_between("q, k, v in f16", 1e-4, 3e-3);
    is_between("q, k, v in bf16", 3e-4, 3e-2);
    is_between("k, v in i8 per token", 1e-3, 3e-2);
    is_between("k, v in i8 per channel", 1e-3, 3e-2);
    is_between("k, v in q8_0", 1e-3, 3e-2);
    is_between("k, v in e4m3", 5e-3, 0.3);
    is_between("k, v in e5m2", 1e-2, 0.5);
    is_between("k, v in q4_0", 1e-2, 0.5);
#ifdef TILEWISE_HAVE_F64
    is_between("q, k, v in f64 f64 exact", 1e-17, 1e-15);
    is_between("q, k, v in f64", 0, 0);
#endif
}

TEST_CASE("accuracy refuses input that is not there, or has no whole blocks") {
    const temporary_directory empty;
    const finished without = run_on(empty);
    CHECK(without.exit_code == 1);
    CHECK(without.text.find("--data") != std::string::npos);
    const temporary_directory odd;
    write_layers(odd, 24);
    const finished run = run_on(odd);
    CHECK(run.exit_code == 1);
    CHECK(run.text.find("--data: head_dim is 24") != std::string::npos);
}

// tilewise run: right results from good files, clear errors and no output from bad ones.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tilewise/tilewise.hpp>

#include "npy.hpp"
#include "program.hpp"

using namespace tilewise_tests;

namespace {

std::vector<float> some_values(std::size_t count, unsigned seed) {
    std::vector<float> values(count);
    for (float& value : values) {
        seed = seed * 1664525U + 1013904223U;
        value = static_cast<float>(seed >> 8) * 0x1p-22F - 2.0F;
    }
    return values;
}

/// 4 query heads, 2 key heads, 5 queries, 9 keys, head_dim 3, value_dim 2, as files q, k and v.
struct problem {
    std::vector<float> q = some_values(4 * 5 * 3, 1);
    std::vector<float> k = some_values(2 * 9 * 3, 2);
    std::vector<float> v = some_values(2 * 9 * 2, 3);
    temporary_directory directory;

    problem() {
        write_file(directory.path("q.npy"), npy_bytes("<f4", {4, 5, 3}, bytes_of(q)));
        write_file(directory.path("k.npy"), npy_bytes("<f4", {2, 9, 3}, bytes_of(k)));
        write_file(directory.path("v.npy"), npy_bytes("<f4", {2, 9, 2}, bytes_of(v)));
    }

    [[nodiscard]] finished run(std::vector<std::string> more = {}) const {
        std::vector<std::string> arguments = {"run"};
        for (const char* name : {"q", "k", "v"}) {
            arguments.push_back(std::string("--") + name);
            arguments.push_back(directory.path(std::string(name) + ".npy"));
        }
        arguments.insert(arguments.end(), {"--out", directory.path("o.npy")});
        arguments.insert(arguments.end(), more.begin(), more.end());
        return tilewise_tests::tilewise(arguments);
    }

    [[nodiscard]] std::vector<float> expected(const ::tilewise::options& how) const {
        std::vector<float> out(4 * 5 * 2);
        ::tilewise::attention(::tilewise::bhsd(q.data(), 1, 4, 5, 3), ::tilewise::bhsd(k.data(), 1, 2, 9, 3),
                              ::tilewise::bhsd(v.data(), 1, 2, 9, 2),
                              ::tilewise::bhsd(out.data(), 1, 4, 5, 2), how);
        return out;
    }
};

/// Runs with this file as q: exit code 1, a message with --q and `what`, and no file left.
void check_refused(const std::string& file, const std::string& what) {
    const problem p;
    CAPTURE(what);
    write_file(p.directory.path("q.npy"), file);
    const finished run = p.run();
    CAPTURE(run.text);
    CHECK(run.exit_code == 1);
    CHECK(run.text.rfind("tilewise: --q: '", 0) == 0);
    CHECK(run.text.find(what) != std::string::npos);
    CHECK(p.directory.files() == std::vector<std::string>{"k.npy", "q.npy", "v.npy"});
}

}  // namespace

TEST_CASE("run computes what the library computes") {
    const problem p;
    REQUIRE(p.run().exit_code == 0);
    CHECK(read_f32(p.directory.path("o.npy"), {4, 5, 2}) == p.expected({}));
    REQUIRE(p.run({"--causal"}).exit_code == 0);
    CHECK(read_f32(p.directory.path("o.npy"), {4, 5, 2}) ==
          p.expected({.causal = ::tilewise::causal::bottom_right}));
    REQUIRE(p.run({"--causal", "top-left", "--scale", "0.25", "--threads", "2"}).exit_code == 0);
    CHECK(read_f32(p.directory.path("o.npy"), {4, 5, 2}) ==
          p.expected({.scale = 0.25F, .causal = ::tilewise::causal::top_left}));
    CHECK(p.directory.files() == std::vector<std::string>{"k.npy", "o.npy", "q.npy", "v.npy"});
}

TEST_CASE("run writes the log-sum-exp") {
    const problem p;
    REQUIRE(p.run({"--lse", p.directory.path("l.npy")}).exit_code == 0);
    std::vector<float> lse(4 * 5);
    CHECK(p.expected({.lse = ::tilewise::row_values(lse.data(), 1, 4, 5)}).size() == 40);
    CHECK(read_f32(p.directory.path("l.npy"), {4, 5}) == lse);
}

TEST_CASE("run takes four dimensions, f16 and Fortran order") {
    const temporary_directory directory;
    // One batch entry, one head, one query, two keys: 1 and 2 match it alike.
    write_file(directory.path("q.npy"), npy_bytes("<f2", {1, 1, 1, 1}, bytes_of<std::uint16_t>({0x0000})));
    write_file(directory.path("k.npy"),
               npy_bytes("<f2", {1, 1, 2, 1}, bytes_of<std::uint16_t>({0x3c00, 0x4000})));
    // Values (1, 10) and (3, 20), columns first.
    write_file(directory.path("v.npy"), npy_bytes("{\"shape\":(1,1,2,2),'fortran_order':True,'descr':'<f4'}",
                                                  bytes_of<float>({1, 3, 10, 20})));
    const finished run =
        tilewise_tests::tilewise({"run", "--q", directory.path("q.npy"), "--k", directory.path("k.npy"),
                                  "--v", directory.path("v.npy"), "--out", directory.path("o.npy")});
    CAPTURE(run.text);
    REQUIRE(run.exit_code == 0);
    CHECK(read_f32(directory.path("o.npy"), {1, 1, 1, 2}) == std::vector<float>{2, 15});
}

TEST_CASE("run refuses hostile and broken files") {
    const std::string data = bytes_of(some_values(4 * 5 * 3, 1));
    const std::string good = npy_bytes("<f4", {4, 5, 3}, data);
    check_refused("", "ends too early");
    check_refused(good.substr(0, 30), "ends too early");
    check_refused("PK\x03\x04 something else entirely", "is not a .npy file");
    check_refused(std::string("\x93NUMPY\x09\x00", 8) + good.substr(8), "has version 9");
    check_refused(good.substr(0, good.size() - 1), "has 239 bytes of data; its shape needs 240");
    check_refused(good + "x", "has 241 bytes of data; its shape needs 240");
    check_refused(std::string("\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12) + good.substr(10), "too long");
    check_refused(npy_bytes("<f8", {4, 5, 3}, data), "elements of type '<f8'");
    check_refused(npy_bytes(">f4", {4, 5, 3}, data), "elements of type '>f4'");
    check_refused(npy_bytes("<f4", {20, 3}, data), "has 2 dimensions");
    check_refused(npy_bytes("<f4", {1, 4, 1, 5, 3}, data), "has 5 dimensions");
    check_refused(npy_bytes("<f4", {4294967296, 4294967296, 16}, data), "beyond 64 bits");
    check_refused(npy_bytes("<f4", {4294967296, 2, 3}, data), "its shape needs 103079215104");
    check_refused(npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (4, -5, 3)}", data),
                  "understood");
    check_refused(
        npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 99999999999999999999, 3)}", data),
        "understood");
    check_refused(npy_bytes("{'descr': '<f4', 'fortran_order': maybe, 'shape': (4, 5, 3)}", data),
                  "understood");
    check_refused(npy_bytes("{'descr': '<f4', 'shape': (4, 5, 3)}", data), "understood");
    check_refused(
        npy_bytes("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4, 5, 3)}", data),
        "understood");
    check_refused(npy_bytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4, 5, 3)}", data),
                  "understood");
    check_refused(npy_bytes(std::string(60000, '('), data), "understood");
}

TEST_CASE("run takes arrays without elements, however wide they are said to be") {
    const problem p;
    const std::string none = npy_bytes("<f4", {0, 4611686018427387904, 4611686018427387904}, "");
    write_file(p.directory.path("q.npy"), none);
    const finished run = p.run();
    CAPTURE(run.text);
    CHECK(run.exit_code == 1);
    CHECK(run.text.find("q: head_dim is 4611686018427387904") != std::string::npos);
    CHECK(p.directory.files() == std::vector<std::string>{"k.npy", "q.npy", "v.npy"});
}

TEST_CASE("run refuses shapes that do not fit, and wrong command lines") {
    const problem p;
    write_file(p.directory.path("v.npy"), npy_bytes("<f4", {2, 8, 2}, bytes_of(some_values(2 * 8 * 2, 3))));
    finished run = p.run();
    CHECK(run.exit_code == 1);
    CHECK(run.text.find("v: ") != std::string::npos);
    CHECK(p.directory.files() == std::vector<std::string>{"k.npy", "q.npy", "v.npy"});

    run = p.run({"--scale", "inf"});
    CHECK(run.exit_code == 2);
    CHECK(run.text.find("--scale") != std::string::npos);
    CHECK(p.run({"--causal", "diagonal"}).exit_code == 2);
    CHECK(p.run({"--lse", p.directory.path("o.npy")}).exit_code == 2);
    CHECK(tilewise_tests::tilewise({"run"}).exit_code == 2);
    run = p.run({"--out", "/dev/full"});
    CHECK(run.exit_code != 0);
}

#include "run_program.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <tilewise/reference.hpp>
#include <vector>

#include "commands.hpp"
#include "errors.hpp"
#include "npy.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::cli::array;

/// Takes what is printed.
class silence : public std::streambuf {
public:
    silence() : before_(std::cout.rdbuf(this)) {}
    ~silence() override { std::cout.rdbuf(before_); }
    silence(const silence&) = delete;
    silence& operator=(const silence&) = delete;

private:
    int_type overflow(int_type character) override { return character; }
    std::streambuf* before_;
};

const std::filesystem::path& folder() {
    static const std::filesystem::path made = [] {
        const auto path =
            std::filesystem::temp_directory_path() / ("tilewise-fuzz-" + std::to_string(getpid()));
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
        return path;
    }();
    return made;
}

/// A whole file; then, at times, some of its bytes are changed, or it ends early.
std::string make_file(byte_source& bytes, const std::vector<count>& shape) {
    const bool is_half = bytes.one_in(3);
    std::string header = is_half ? "{'descr': '<f2', " : "{'descr': '<f4', ";
    header += bytes.one_in(4) ? "'fortran_order': True, 'shape': (" : "'fortran_order': False, 'shape': (";
    count elements = 1;
    for (const count extent : shape) {
        header += std::to_string(extent) + ", ";
        elements *= extent;
    }
    header += "), }\n";
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(header.size());
    file += '\0';
    file += header;
    std::uint32_t state = bytes.byte();
    for (count n = 0; n < elements * (is_half ? 2 : 4); ++n) {
        state = state * 1664525U + 1013904223U;
        // Most numbers are of moderate size.
        const bool is_high = n % (is_half ? 2 : 4) == (is_half ? 1 : 3);
        file += static_cast<char>(is_high ? 0x3b + (state >> 30U) : state >> 24U);
    }
    if (!bytes.one_in(4)) { return file; }
    for (count changes = bytes.between(1, 3); changes > 0; --changes) {
        file[static_cast<std::size_t>(bytes.between(0, 1023)) % file.size()] =
            static_cast<char>(bytes.byte());
    }
    if (bytes.one_in(4)) {
        file.resize(static_cast<std::size_t>(bytes.between(0, 1023)) % (file.size() + 9));
    }
    return file;
}

std::array<std::string, 3> make_files(byte_source& bytes) {
    const count heads = bytes.between(1, 2);
    const count tokens = bytes.between(0, 5);
    const count keys = bytes.between(0, 6);
    const count dim = bytes.between(0, 5);
    std::array<std::vector<count>, 3> shapes = {
        {{heads * bytes.between(1, 2), tokens, dim}, {heads, keys, dim}, {heads, keys, bytes.between(0, 5)}}};
    if (bytes.one_in(2)) {
        const count batch = bytes.between(0, 2);
        for (auto& shape : shapes) { shape.insert(shape.begin(), batch); }
    }
    if (bytes.one_in(8)) { shapes[static_cast<std::size_t>(bytes.between(0, 2))][0] += 1; }
    return {make_file(bytes, shapes[0]), make_file(bytes, shapes[1]), make_file(bytes, shapes[2])};
}

struct command_line {
    std::vector<std::string> words;
    tilewise::options how;
    bool has_lse = false;
    bool is_plain = true;  ///< and `how` says the same
};

void add_arguments(byte_source& bytes, command_line& line) {
    if (bytes.one_in(3)) {
        line.words.push_back(bytes.one_in(2) ? "--causal=top-left" : "--causal");
        line.how.causal =
            line.words.back() == "--causal" ? tilewise::causal::bottom_right : tilewise::causal::top_left;
    }
    if (bytes.one_in(4)) {
        constexpr std::array words = {
            "--scale=nan", "--scale=1e39", "--scale=", "--causal=left", "--threads=-1", "--threads=1025",
            "--isa=avx7",  "--isa=",       "--out",    "--k=-",         "--lse=/",      "x"};
        line.words.emplace_back(bytes.pick(words));
        line.is_plain = false;
    }
    if (bytes.one_in(4)) {
        line.words.emplace_back("--scale=-0.75");
        line.how.scale = -0.75F;
    }
    if (bytes.one_in(4)) { line.words.push_back("--threads=" + std::to_string(bytes.between(0, 4))); }
    if (bytes.one_in(3)) {
        const auto all = tilewise::available_isas();
        line.words.push_back("--isa=" + std::string(tilewise::isa_name(bytes.pick(all))));
    }
}

/// What the program says is wrong; empty if it did its work.
std::string run(std::vector<std::string> words) {
    const silence quiet;
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    try {
        CLI::App app("", "tilewise");
        app.require_subcommand(1);
        tilewise::cli::add_run(app);
        app.parse(words);
        return {};
    } catch (const CLI::ParseError& error) {
        return error.what();
    } catch (const tilewise::cli::usage_error& error) {
        return error.what();
    } catch (const tilewise::cli::run_error& error) {
        return error.what();
    } catch (const std::invalid_argument& error) { return error.what(); } catch (const std::bad_alloc&) {
        return "not enough memory";
    } catch (const std::exception& error) {
        report(std::string("an exception of the wrong type: ") + error.what());
    }
}

/// The file has the bits of `want`, whatever its number of dimensions.
void compare(const std::filesystem::path& file, const std::vector<float>& want) {
    const std::vector<std::byte> got = tilewise::cli::read_raw_npy("--out", file).bytes;
    if (got.size() != want.size() * sizeof(float) ||
        (!want.empty() && std::memcmp(got.data(), want.data(), got.size()) != 0)) {
        report("the program wrote other bits than the reference: " + file.filename().string());
    }
}

void check_results(const std::array<std::string, 3>& inputs, command_line& line) {
    const array q = tilewise::cli::read_npy("--q", inputs[0]);
    const array k = tilewise::cli::read_npy("--k", inputs[1]);
    const array v = tilewise::cli::read_npy("--v", inputs[2]);
    const tilewise::const_tensor view = q.view();
    const count rows = view.batch() * view.heads() * view.tokens();
    const count dim = v.view().head_dim();
    std::vector<float> out(static_cast<std::size_t>(rows * dim));
    std::vector<float> lse(static_cast<std::size_t>(rows));
    line.how.lse = tilewise::row_values(lse.data(), view.batch(), view.heads(), view.tokens());
    tilewise::reference::attention(view, k.view(), v.view(),
                                   tilewise::bhsd(out.data(), view.batch(), view.heads(), view.tokens(), dim),
                                   line.how);
    compare(folder() / "out.npy", out);
    if (line.has_lse) { compare(folder() / "lse.npy", lse); }
}

/// Whether the files describe more than a test wants to compute, or to hold in memory.
bool is_large(const std::array<std::string, 3>& inputs) {
    try {
        long double work = 1;
        for (const std::string& file : inputs) {
            for (const count extent : tilewise::cli::read_npy("--q", file).shape) {
                work *= std::max(static_cast<long double>(extent), 1.0L);
            }
        }
        return work > 1e7L;
    } catch (const tilewise::cli::run_error&) { return false; }
}

}  // namespace

void check_run(byte_source& bytes) {
    const std::array<std::string, 3> contents = make_files(bytes);
    std::array<std::unique_ptr<memory_file>, 3> files;
    std::array<std::string, 3> paths;
    for (std::size_t n = 0; n < 3; ++n) {
        files[n] = std::make_unique<memory_file>(contents[n].data(), contents[n].size());
        paths[n] = files[n]->path();
    }
    if (is_large(paths)) { return; }
    command_line line;
    line.has_lse = bytes.one_in(2);
    line.words = {"run", "--q", paths[0], "--k", paths[1], "--v", paths[2], "--out", folder() / "out.npy"};
    if (line.has_lse) {
        line.words.emplace_back("--lse");
        line.words.emplace_back(folder() / "lse.npy");
    }
    add_arguments(bytes, line);
    const std::string said = run(line.words);
    tilewise::unforce_isa();
    const auto entries =
        std::distance(std::filesystem::directory_iterator(folder()), std::filesystem::directory_iterator());
    if (entries != (!said.empty() ? 0 : line.has_lse ? 2 : 1)) {
        report("other files than expected are left: " + said);
    }
    if (said.empty() && line.is_plain) { check_results(paths, line); }
    for (const char* const name : {"out.npy", "lse.npy"}) { std::filesystem::remove(folder() / name); }
}

}  // namespace tilewise_tests

// What an attention_stream holds, and that it needs no more: keys and values come from files, in a process
// whose memory they do not fit in.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tilewise/stream.hpp>
#include <vector>

#include "allocation_counter.hpp"
#include "cases.hpp"
#include "sanitizers.hpp"
#include "streams.hpp"
#include "support.hpp"

#if defined(__linux__)
#    include <sys/mman.h>
#    include <sys/resource.h>
#    include <sys/wait.h>
#    include <unistd.h>
#endif

namespace tilewise_tests {

namespace {

using count = std::int64_t;

}  // namespace

TEST_CASE("stream memory: it holds what the documentation says, and scratch while it works") {
    const attention_case sizes{
        .batch = 2, .heads = 6, .kv_heads = 2, .queries = 50, .keys = 1000, .key_dim = 32, .value_dim = 64};
    const inputs given = make_inputs(sizes);
    const std::size_t held = 4U * 2 * 6 * 50 * (3 + 64) + 512U * 2 * 2 * (32 + 64);
    tilewise::options how;
    how.threads = 1;
    const std::size_t scratch = tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(),
                                                         make_results(sizes).out.view(), how)
                                    .scratch_bytes;
    constexpr std::size_t some = 2000;
    std::size_t asked = 0;
    {
        const allocation_counter counter;
        tilewise::attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
        asked = counter.bytes();
        CHECK(asked >= held);
        CHECK(asked <= held + scratch + some);
        add_keys(stream, given, 0, 1000);
        CHECK(counter.bytes() - asked <= scratch + some);
    }
    tilewise::attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
    const allocation_counter counter;
    add_keys(stream, given, 0, 127);
    CHECK(counter.bytes() == 0);
}

TEST_CASE("stream memory: with a workspace, adding and finishing allocate nothing") {
    const attention_case sizes{
        .batch = 2, .heads = 6, .kv_heads = 2, .queries = 50, .keys = 700, .key_dim = 32, .value_dim = 64};
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, {});
    const row_results got(sizes);
    tilewise::options how{.threads = 1};
    std::vector<std::byte> memory(
        tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how)
            .scratch_bytes +
        63);
    how.workspace = memory;
    tilewise::attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
    const allocation_counter counter;
    add_keys(stream, given, 0, 300);
    add_keys(stream, given, 300, 400);
    stream.finish(got.out.view(), got.lse.view(), got.row_maximum.view());
    CHECK(counter.requests() == 0);
    CHECK(first_difference(got, want) == "");

    how.workspace = std::span(memory).first(100);
    CHECK_THROWS_AS(tilewise::attention_stream(given.q.view(), stream_sizes_of(sizes), how),
                    std::invalid_argument);
    // Memory of the keys, or of the results.
    how.workspace = {static_cast<std::byte*>(given.k.view().data), memory.size()};
    tilewise::attention_stream over_keys(given.q.view(), stream_sizes_of(sizes), how);
    CHECK_THROWS_AS(add_keys(over_keys, given, 0, 200), std::invalid_argument);
}

// A sanitizer's malloc has its own ways to get memory.
#if defined(__linux__) && !defined(TILEWISE_TESTS_SANITIZED)

namespace {

constexpr int limit_has_no_effect = 3;

/// A folder that is gone afterwards.
class temporary_folder {
public:
    temporary_folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tilewise-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) { throw std::runtime_error("no temporary folder"); }
        path_ = pattern;
    }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }

private:
    std::filesystem::path path_;
};

void write_floats(std::ofstream& file, const std::vector<float>& values) {
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
}

std::vector<float> read_floats(std::ifstream& file, count size) {
    std::vector<float> values(static_cast<std::size_t>(size));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    if (!file) { throw std::runtime_error("the file is too short"); }
    return values;
}

/// Tokens of normal random numbers, written without ever being in memory together.
void write_tokens(const std::string& path, std::uint64_t seed, count tokens, count dim) {
    std::ofstream file(path, std::ios::binary);
    random_source random(seed);
    std::vector<float> row(static_cast<std::size_t>(dim));
    for (count t = 0; t < tokens; ++t) {
        for (float& value : row) { value = random.normal(); }
        write_floats(file, row);
    }
}

struct file_case {
    count keys;
    count queries = 3;
    count dim = 64;
    std::string k;
    std::string v;
    std::string out;
    std::vector<float> q = {};
};

/// The bytes of address space that this process has.
std::size_t address_space() {
    std::ifstream status("/proc/self/statm");
    std::size_t pages = 0;
    status >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// It may have no more than so much.
void limit_address_space(std::size_t bytes) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0) { throw std::runtime_error("getrlimit failed"); }
    limit.rlim_cur = bytes;
    if (setrlimit(RLIMIT_AS, &limit) != 0) { throw std::runtime_error("setrlimit failed"); }
}

bool can_map(std::size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) { return false; }
    munmap(memory, bytes);
    return true;
}

/// Takes for good what other tests have given back to the heap, where no more can be had.
void use_up_heap() {
    void* volatile memory = nullptr;  // or clang++ would leave out a malloc whose memory nobody looks at
    for (std::size_t bytes = std::size_t{1} << 30U; bytes >= 4096; bytes /= 2) {
        do { memory = std::malloc(bytes); } while (memory != nullptr);
    }
}

/// Streams the files' keys and values, 1000 tokens at a time, and writes the output to a file.
void stream_files(const file_case& of) {
    tilewise::attention_stream stream(tilewise::bhsd(of.q.data(), 1, 1, of.queries, of.dim),
                                      {.value_dim = of.dim, .total_keys = of.keys},
                                      {.causal = tilewise::causal::bottom_right, .threads = 1});
    std::ifstream k(of.k, std::ios::binary);
    std::ifstream v(of.v, std::ios::binary);
    for (count first = 0; first < of.keys; first += 1000) {
        const count tokens = std::min<count>(1000, of.keys - first);
        const std::vector<float> keys = read_floats(k, tokens * of.dim);
        const std::vector<float> values = read_floats(v, tokens * of.dim);
        stream.add(tilewise::bhsd(keys.data(), 1, 1, tokens, of.dim),
                   tilewise::bhsd(values.data(), 1, 1, tokens, of.dim));
    }
    std::vector<float> out(of.q.size());
    stream.finish(tilewise::bhsd(out.data(), 1, 1, of.queries, of.dim));
    std::ofstream file(of.out, std::ios::binary);
    write_floats(file, out);
}

/// In a process of its own: nothing but this must be limited. Threads of OpenMP do not survive a fork, and
/// none is asked for. Returns its exit code.
int stream_files_with_little_memory(const file_case& of, std::size_t memory) {
    const pid_t child = fork();
    if (child == 0) {
        int code = 2;
        try {
            const std::size_t used = address_space();
            limit_address_space(used);
            code = limit_has_no_effect;
            if (!can_map(memory)) {
                use_up_heap();
                limit_address_space(used + memory);
                code = 1;
                stream_files(of);
                code = 0;
            }
        } catch (const std::exception& error) { std::printf("in the child: %s\n", error.what()); }
        std::fflush(stdout);
        _exit(code);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) { return -1; }
    return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("stream memory: keys and values from files that do not fit into memory") {
    const temporary_folder folder;
    file_case of{.keys = by_effort(20'000, 100'001, 200'001),
                 .k = folder.file("k"),
                 .v = folder.file("v"),
                 .out = folder.file("out")};
    of.q.resize(static_cast<std::size_t>(of.queries * of.dim));
    random_source random(61);
    for (float& value : of.q) { value = random.normal(); }
    write_tokens(of.k, 62, of.keys, of.dim);
    write_tokens(of.v, 63, of.keys, of.dim);
    const auto cache = static_cast<std::size_t>(2 * of.keys * of.dim) * sizeof(float);
    constexpr std::size_t memory = std::size_t{4} << 20U;
    REQUIRE(memory < cache / 2);
    const int code = stream_files_with_little_memory(of, memory);
    if (code == limit_has_no_effect) {
        MESSAGE("this system does not limit memory (an emulator?)");
        return;
    }
    REQUIRE(code == 0);
    std::ifstream k(of.k, std::ios::binary);
    std::ifstream v(of.v, std::ios::binary);
    std::ifstream streamed(of.out, std::ios::binary);
    const std::vector<float> keys = read_floats(k, of.keys * of.dim);
    const std::vector<float> values = read_floats(v, of.keys * of.dim);
    const std::vector<float> got = read_floats(streamed, of.queries * of.dim);
    std::vector<float> want(of.q.size());
    tilewise::attention(tilewise::bhsd(of.q.data(), 1, 1, of.queries, of.dim),
                        tilewise::bhsd(keys.data(), 1, 1, of.keys, of.dim),
                        tilewise::bhsd(values.data(), 1, 1, of.keys, of.dim),
                        tilewise::bhsd(want.data(), 1, 1, of.queries, of.dim),
                        {.causal = tilewise::causal::bottom_right});
    CHECK(first_difference(tilewise::bhsd(got.data(), 1, 1, of.queries, of.dim),
                           tilewise::bhsd(want.data(), 1, 1, of.queries, of.dim)) == "");
}

#endif

}  // namespace tilewise_tests

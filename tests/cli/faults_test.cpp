// tilewise run where the file system fails: on a full disk, where it may not write, on files that end early.
// What was there stays as it was, and nothing half-written is left.

#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "child_process.hpp"
#include "program.hpp"

using namespace tilewise_tests;

namespace {

/// One head, 5 queries, 9 keys, value_dim 2000: 40 kB of output, 148 bytes of log-sum-exp with the header.
struct problem {
    temporary_directory directory;

    problem() {
        const auto write = [&](const char* name, std::int64_t tokens, std::int64_t dim) {
            const std::vector<float> ones(static_cast<std::size_t>(tokens * dim), 1.0F);
            write_file(directory.path(name), npy_bytes("<f4", {1, tokens, dim}, bytes_of(ones)));
        };
        write("q.npy", 5, 3);
        write("k.npy", 9, 3);
        write("v.npy", 9, 2000);
    }

    /// Runs the program from a shell, after some commands.
    [[nodiscard]] finished run_after(const std::string& commands, const std::string& out,
                                     const std::string& prefix = "") const {
        const std::string script = commands + " exec " + prefix +
                                   " \"$0\" run --q q.npy --k k.npy --v v.npy --lse l.npy --out " + out;
        const auto child = ::tilewise::measure::run_child(
            "sh", {"-c", "cd '" + directory.path("") + "' && " + script, TILEWISE_PROGRAM}, true);
        REQUIRE(child.started);
        return {child.exit_code, child.output};
    }
};

const std::vector<std::string> inputs_alone = {"k.npy", "q.npy", "v.npy"};

/// No file may grow beyond 1024 bytes (or 2048, in some shells). LLVM's OpenMP makes a shared file of 1024
/// bytes with the process's number in its name when it starts; cut short, it would crash the next process so
/// numbered.
const std::string small_files = "ulimit -f 2;";

}  // namespace

TEST_CASE("run on a full disk leaves nothing, and what was there as it was") {
    const problem p;
    finished run = p.run_after("trap '' XFSZ; " + small_files, "o.npy");
    CAPTURE(run.text);
    CHECK(run.exit_code == 1);
    CHECK(run.text.find("'o.npy' could not be written: ") != std::string::npos);
    CHECK(p.directory.files() == inputs_alone);

    write_file(p.directory.path("o.npy"), "precious");
    run = p.run_after("trap '' XFSZ; " + small_files, "o.npy");
    CHECK(run.exit_code == 1);
    CHECK(read_file(p.directory.path("o.npy")) == "precious");
    CHECK(p.directory.files() == std::vector<std::string>{"k.npy", "o.npy", "q.npy", "v.npy"});
}

TEST_CASE("run that is killed while it writes leaves no file under the result's name") {
    const problem p;
    const finished run = p.run_after("ulimit -c 0; " + small_files, "o.npy");
    CAPTURE(run.text);
    CHECK(run.exit_code != 0);
    for (const std::string& name : p.directory.files()) {
        CHECK(name != "o.npy");
        CHECK(name != "l.npy");
    }
}

TEST_CASE("run refuses what is no regular file, and leaves it there") {
    const problem p;
    for (const char* out : {"/dev/full", "/dev/null", ".", "missing/o.npy"}) {
        CAPTURE(out);
        const finished run = p.run_after("", out);
        CHECK(run.exit_code == 1);
        CHECK(run.text.find("--out: '" + std::string(out) + "'") != std::string::npos);
        CHECK(p.directory.files() == inputs_alone);
    }
}

TEST_CASE("run replaces no file that is protected against writing") {
    const problem p;
    write_file(p.directory.path("o.npy"), "precious");
    REQUIRE(chmod(p.directory.path("o.npy").c_str(), 0444) == 0);
    REQUIRE(chmod(p.directory.path("").c_str(), 0777) == 0);
    // Nothing is protected against root.
    const std::string prefix = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups" : "";
    const finished run = p.run_after("", "o.npy", prefix);
    if (run.exit_code == 126 || run.exit_code == 127) {
        MESSAGE("skipped: ", run.text);
        return;
    }
    CAPTURE(run.text);
    CHECK(run.exit_code == 1);
    CHECK(run.text.find("--out: 'o.npy' cannot be written: Permission denied") != std::string::npos);
    CHECK(read_file(p.directory.path("o.npy")) == "precious");
    CHECK(p.directory.files() == std::vector<std::string>{"k.npy", "o.npy", "q.npy", "v.npy"});
}

TEST_CASE("run reports a file that ends early, wherever it ends") {
    const problem p;
    const std::string whole = read_file(p.directory.path("k.npy"));
    for (std::size_t size = 0; size < whole.size(); size += size < 12 ? 1 : 13) {
        CAPTURE(size);
        write_file(p.directory.path("k.npy"), whole.substr(0, size));
        const finished run = p.run_after("", "o.npy");
        CHECK(run.exit_code == 1);
        CHECK(run.text.rfind("tilewise: --k: 'k.npy' ", 0) == 0);
        CHECK(p.directory.files() == inputs_alone);
    }
}

#include "isa_probe.hpp"

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <tilewise/tilewise.hpp>

#if defined(__unix__) || defined(__APPLE__)
#    include <sys/wait.h>
#    include <unistd.h>
#    define TILEWISE_TESTS_FORK 1
#endif

namespace tilewise_tests {
namespace {

std::vector<isa_probe> probes;

#ifdef TILEWISE_TESTS_FORK
std::string try_active_isa() {
    try {
        return std::string(tilewise::isa_name(tilewise::active_isa()));
    } catch (const std::invalid_argument& error) { return std::string("error: ") + error.what(); }
}

std::string try_attention(float& out) {
    const float one = 1.0F;
    const auto input = tilewise::bhsd(&one, 1, 1, 1, 1);
    try {
        tilewise::attention(input, input, input, tilewise::bhsd(&out, 1, 1, 1, 1), {.threads = 1});
        return "computed";
    } catch (const std::invalid_argument& error) { return std::string("error: ") + error.what(); }
}

// The child's work: its report is three lines.
std::string report_for(const std::string& value) {
    setenv("TILEWISE_ISA", value.c_str(), 1);
    float out = -1.0F;
    const std::string attention = try_attention(out);
    return try_active_isa() + '\n' + attention + '\n' + (out == -1.0F ? "untouched\n" : "written\n");
}

std::string read_all(int descriptor) {
    std::string text;
    char part[256];
    for (ssize_t count = 1; count > 0;) {
        count = read(descriptor, part, sizeof part);
        if (count > 0) { text.append(part, static_cast<std::size_t>(count)); }
    }
    return text;
}

isa_probe probe(const std::string& value) {
    int channel[2];
    if (pipe(channel) != 0) { return {value, "no pipe", "", false}; }
    const pid_t child = fork();
    if (child == 0) {
        const std::string report = report_for(value);
        const bool sent =
            write(channel[1], report.data(), report.size()) == static_cast<ssize_t>(report.size());
        _exit(sent ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    close(channel[1]);
    const std::string report = read_all(channel[0]);
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const std::size_t first = report.find('\n');
    const std::size_t second = report.find('\n', first + 1);
    if (second == std::string::npos) { return {value, "the child process ended early", "", false}; }
    return {value, report.substr(0, first), report.substr(first + 1, second - first - 1),
            report.substr(second + 1) == "written\n"};
}
#endif

}  // namespace

void probe_isa_environment() {
#ifdef TILEWISE_TESTS_FORK
    for (const char* value : {"", "avx1024", "AVX2", "sse2", "avx2", "avx512", "neon"}) {
        probes.push_back(probe(value));
    }
#endif
}

std::span<const isa_probe> isa_probes() { return probes; }

}  // namespace tilewise_tests

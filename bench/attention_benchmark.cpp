// How fast attention() is, as a share of what the machine can do at most. series.hpp says what the columns
// are; each file beside it that is named after a suite says what the rows' names mean.
//
// Without --benchmark_filter, a selection of some minutes runs. A filter selects among all rows, of which
// there are thousands, and some of which take minutes: --list lists them. (So does --benchmark_list_tests,
// whose time grows with the square of their number.)
//   --benchmark_filter='prefill/avx2/f32/d:64/.*threads:1'
//   --benchmark_filter='decode/.*/(f16|q8_0)/bhsd/batch:1/heads:32/T:32k/threads:1'

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tilewise/version.hpp>

#include "machine.hpp"
#include "suites/suites.hpp"

namespace {

#if defined(__clang__)
constexpr const char* compiler = "clang++ " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* compiler = "g++ " __VERSION__;
#else
constexpr const char* compiler = "unknown";
#endif

std::string version() {
    return std::to_string(TILEWISE_VERSION_MAJOR) + "." + std::to_string(TILEWISE_VERSION_MINOR) + "." +
           std::to_string(TILEWISE_VERSION_PATCH);
}

bool has_filter(int argc, char** argv) {
    constexpr std::string_view option = "--benchmark_filter";
    return std::getenv("BENCHMARK_FILTER") != nullptr ||
           std::any_of(argv, argv + argc, [&](const char* argument) {
               return std::string_view(argument).rfind(option, 0) == 0;
           });
}

}  // namespace

int main(int argc, char** argv) {
    namespace suites = tilewise::suites;
    suites::row_list rows;
    for (const auto add : {suites::add_prefill, suites::add_decode, suites::add_rows, suites::add_masks,
                           suites::add_layouts, suites::add_models, suites::add_threads, suites::add_calls}) {
        add(rows);
    }
    const std::string_view first = argc == 2 ? argv[1] : "";
    if (first == "--list") {
        for (const suites::row& r : rows.all()) { std::puts(r.name.c_str()); }
        return 0;
    }
    if (first.rfind(suites::peak_memory_option, 0) == 0) {
        const std::size_t bytes = rows.peak_memory_of(first.substr(suites::peak_memory_option.size()));
        std::printf("%zu\n", bytes);
        return bytes > 0 ? 0 : 2;
    }
    rows.register_rows(has_filter(argc, argv));
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 2; }
    benchmark::AddCustomContext("processor", tilewise::measure::cpu_name());
    benchmark::AddCustomContext("tilewise", version());
    benchmark::AddCustomContext("compiler", compiler);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

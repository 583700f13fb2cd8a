// How fast attention() is, as a share of what the machine can do at most. series.hpp says what the columns
// are; each file beside it that is named after a suite says what the rows' names mean.
//
// Without --benchmark_filter, a selection of some minutes runs. A filter selects among all rows, of which
// there are thousands, and some of which take minutes: --benchmark_filter=. --benchmark_list_tests lists
// them.
//   --benchmark_filter='prefill/avx2/f32/d:64/.*threads:1'
//   --benchmark_filter='decode/.*/(f16|q8_0)/bhsd/batch:1/heads:32/T:32k/threads:1'

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "machine.hpp"
#include "suites/suites.hpp"

namespace {

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
    const suites::registry rows(has_filter(argc, argv));
    for (const auto add : {suites::add_prefill, suites::add_decode, suites::add_rows, suites::add_masks,
                           suites::add_layouts, suites::add_models, suites::add_threads, suites::add_calls}) {
        add(rows);
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 2; }
    benchmark::AddCustomContext("processor", tilewise::measure::cpu_name());
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

// tilewise info: what the machine is and what it can do at most.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>

#include "commands.hpp"
#include "fma_peak.hpp"
#include "machine.hpp"
#include "naive.hpp"
#include "read_bandwidth.hpp"
#include "text.hpp"

namespace tilewise::cli {
namespace {

std::string best_peak(isa which, measure::numbers with) {
    double best = 0;
    for (int i = 0; i < 5; ++i) { best = std::max(best, measure::peak_gflops(which, with)); }
    return format_fixed(best, 1);
}

void print_caches() {
    std::cout << "caches          ";
    const std::vector<measure::cache> caches = measure::caches();
    for (std::size_t i = 0; i < caches.size(); ++i) {
        std::cout << (i == 0 ? "" : ", ") << "L" << caches[i].level << " " << format_bytes(caches[i].bytes);
    }
    std::cout << (caches.empty() ? "unknown" : " (of the first core; L3 may be shared)") << '\n';
}

void print_info(const std::string& isa_given) {
    const isa active = choose_isa(isa_given);
    const int threads = measure::default_threads();
    std::cout << "processor       " << measure::cpu_name() << '\n' << "threads         " << threads << '\n';
    print_caches();
    const std::size_t memory = measure::available_memory();
    std::cout << "memory          "
              << (memory == std::numeric_limits<std::size_t>::max() ? "unknown" : format_bytes(memory))
              << " available\n\n"
              << "FMA peak of one core, f32 and f64 (what the arithmetic units can do at most):\n";
    for (const isa which : available_isas()) {
        const std::string name(isa_name(which));
        std::cout << "  " << name << std::string(14 - name.size(), ' ')
                  << best_peak(which, measure::numbers::f32) << " and "
                  << best_peak(which, measure::numbers::f64) << " GFLOP/s"
                  << (which == isa::sse2 ? " (multiply and add: it has no fused operation)" : "")
                  << (which == active ? "   <- active" : "") << '\n';
    }
    if (measure::has_bf16_products()) {
        std::cout << "Peak of products of bf16 pairs: " << best_peak(active, measure::numbers::bf16)
                  << " GFLOP/s\n";
    }
    std::cout << "\nReading memory, 256 MiB:\n"
              << "  1 thread      " << format_fixed(measure::read_bandwidth_gbps(active, 1), 1) << " GB/s\n";
    if (threads > 1) {
        std::cout << "  " << threads << " threads" << std::string(5, ' ')
                  << format_fixed(measure::read_bandwidth_gbps(active, threads), 1) << " GB/s\n";
    }
    std::cout << "\nNaive products  "
              << (measure::has_openblas()
                      ? measure::naive_products_name(measure::naive_products::openblas, active) + " or "
                      : std::string("no OpenBLAS in this build; "))
              << measure::naive_products_name(measure::naive_products::loops, active) << '\n';
}

}  // namespace

void add_info(CLI::App& app) {
    const auto isa_given = std::make_shared<std::string>();
    CLI::App* command =
        app.add_subcommand("info", "The machine: instruction sets, caches, FMA peak, read bandwidth");
    add_isa_option(*command, *isa_given);
    command->callback([isa_given] { print_info(*isa_given); });
}

}  // namespace tilewise::cli

#include "fma_peak.hpp"

#include <algorithm>
#include <cstdint>

#include "clock.hpp"
#include "isa_tables.hpp"

namespace tilewise::measure {

namespace {

double best_rate(void (*chains)(std::int64_t rounds), int flops_per_round) {
    constexpr std::int64_t rounds = 100'000;
    constexpr int repeats = 8;
    const double gflop = 1e-9 * static_cast<double>(rounds) * flops_per_round;
    double best = 0;
    for (int i = 0; i < repeats; ++i) {
        const stopwatch watch(1);
        chains(rounds);
        best = std::max(best, gflop / watch.elapsed().cpu);
    }
    return best;
}

}  // namespace

double fma_peak_gflops(isa which) {
    const machine_kernels& kernels = machine_kernels_of(which);
    return best_rate(kernels.multiply_add_chains, kernels.flops_per_round);
}

double peak_gflops(isa which, arithmetic how) {
    if (how == arithmetic::exact) { return fma_peak_gflops(which); }
    const pair_kernels& kernels = pair_kernels_of(which);
    return best_rate(kernels.chains, kernels.flops_per_round);
}

}  // namespace tilewise::measure

#include "fma_peak.hpp"

#include <algorithm>
#include <cstdint>

#include "clock.hpp"
#include "isa_tables.hpp"

namespace tilewise::measure {

double fma_peak_gflops(isa which) {
    const machine_kernels& kernels = machine_kernels_of(which);
    constexpr std::int64_t rounds = 100'000;
    constexpr int repeats = 8;
    const double gflop = 1e-9 * static_cast<double>(rounds) * kernels.flops_per_round;
    double best = 0;
    for (int i = 0; i < repeats; ++i) {
        const stopwatch watch(1);
        kernels.multiply_add_chains(rounds);
        best = std::max(best, gflop / watch.elapsed().cpu);
    }
    return best;
}

}  // namespace tilewise::measure

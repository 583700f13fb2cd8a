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

numbers numbers_of(element_type queries, arithmetic how) {
    if (how == arithmetic::fastest) { return numbers::bf16; }
    return queries == element_type::f64 ? numbers::f64 : numbers::f32;
}

double peak_gflops(isa which, numbers with) {
    if (with == numbers::f32) { return fma_peak_gflops(which); }
    if (with == numbers::f64) {
        const machine_kernels& kernels = machine_kernels_of(which);
        return best_rate(kernels.f64_chains, kernels.f64_flops_per_round);
    }
    const pair_kernels& kernels = pair_kernels_of(which);
    return best_rate(kernels.chains, kernels.flops_per_round);
}

bool has_bf16_products() {
    const bfloat16 one(1.0F);
    float out = 0.0F;
    const const_tensor in = bhsd(&one, 1, 1, 1, 1);
    const plan planned =
        plan_attention(in, in, in, bhsd(&out, 1, 1, 1, 1), {.arithmetic = arithmetic::fastest});
    return planned.arithmetic == arithmetic::fastest;
}

}  // namespace tilewise::measure

// Loops that measure what the machine can do at most; compiled once per instruction set.

#include "kernel_table.hpp"
#include "vector.hpp"

namespace tilewise::measure::TILEWISE_ISA {
namespace {

void multiply_add_chains(std::int64_t rounds) {
    vec chain[chains];
    TILEWISE_MEASURE_UNROLL
    for (int i = 0; i < chains; ++i) { chain[i] = broadcast(1.0F + static_cast<float>(i)); }
    vec factor = broadcast(0.5F);
    vec term = broadcast(0.5F);
    forget(factor);
    forget(term);
    // Every chain tends to 1: nothing overflows, and nothing becomes subnormal and slow.
    for (std::int64_t round = 0; round < rounds; ++round) {
        TILEWISE_MEASURE_UNROLL
        for (vec& value : chain) { value = multiply_add(value, factor, term); }
    }
    TILEWISE_MEASURE_UNROLL
    for (vec& value : chain) { forget(value); }
}

float sum(const float* values, std::int64_t count) {
    constexpr int streams = 4;
    vec partial[streams];
    for (vec& value : partial) { value = broadcast(0.0F); }
    for (std::int64_t i = 0; i < count; i += streams * lanes) {
        for (int s = 0; s < streams; ++s) { partial[s] = add(partial[s], load(values + i + s * lanes)); }
    }
    const vec all = add(add(partial[0], partial[1]), add(partial[2], partial[3]));
    float stored[lanes];
    store(stored, all);
    float total = 0.0F;
    for (const float value : stored) { total += value; }
    return total;
}

}  // namespace

extern const machine_kernels machine_table;
const machine_kernels machine_table = {multiply_add_chains, 2 * lanes* chains, sum};

}  // namespace tilewise::measure::TILEWISE_ISA

// Loops that measure what the machine can do at most; compiled once per instruction set.

#include "kernel_table.hpp"
#include "vector.hpp"

namespace tilewise::measure::TILEWISE_ISA {
namespace {

template <class Vector, class Number>
void multiply_add_chains(std::int64_t rounds) {
    Vector chain[chains];
    TILEWISE_MEASURE_UNROLL
    for (int i = 0; i < chains; ++i) { chain[i] = broadcast(static_cast<Number>(1 + i)); }
    Vector factor = broadcast(static_cast<Number>(0.5));
    Vector term = factor;
    forget(factor);
    forget(term);
    // Every chain tends to 1: nothing overflows, and nothing becomes subnormal and slow.
    for (std::int64_t round = 0; round < rounds; ++round) {
        TILEWISE_MEASURE_UNROLL
        for (Vector& value : chain) { value = multiply_add(value, factor, term); }
    }
    TILEWISE_MEASURE_UNROLL
    for (Vector& value : chain) { forget(value); }
}

float total_of(const vec (&partial)[4]) {
    float stored[lanes];
    store(stored, add(add(partial[0], partial[1]), add(partial[2], partial[3])));
    float total = 0.0F;
    for (const float value : stored) { total += value; }
    return total;
}

float sum(const float* values, std::int64_t count) {
    constexpr int streams = 4;
    vec partial[streams];
    for (vec& value : partial) { value = broadcast(0.0F); }
    for (std::int64_t i = 0; i < count; i += streams * lanes) {
        for (int s = 0; s < streams; ++s) { partial[s] = add(partial[s], load(values + i + s * lanes)); }
    }
    return total_of(partial);
}

float sum_streams(const float* values, std::int64_t count) {
    constexpr std::int64_t streams = 8;
    constexpr std::int64_t step = 64;    // floats of a stream between two others
    constexpr std::int64_t ahead = 256;  // floats
    vec partial[4];
    for (vec& value : partial) { value = broadcast(0.0F); }
    const std::int64_t part = count / streams;
    for (std::int64_t i = 0; i < part; i += step) {
        for (std::int64_t s = 0; s < streams; ++s) {
            const float* const from = values + s * part + i;
            for (std::int64_t n = 0; n < step; n += 16) { __builtin_prefetch(from + ahead + n, 0, 2); }
            for (std::int64_t n = 0; n < step; n += 4 * lanes) {
                for (int p = 0; p < 4; ++p) { partial[p] = add(partial[p], load(from + n + p * lanes)); }
            }
        }
    }
    return total_of(partial);
}

}  // namespace

extern const machine_kernels machine_table;
const machine_kernels machine_table = {multiply_add_chains<vec, float>,
                                       2 * lanes* chains,
                                       multiply_add_chains<f64_vec, double>,
                                       lanes* chains,
                                       sum,
                                       sum_streams};

}  // namespace tilewise::measure::TILEWISE_ISA

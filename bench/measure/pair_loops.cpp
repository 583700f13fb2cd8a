// The loop that measures how fast pairs of bf16 are multiplied and added; compiled once for each instruction
// set that has such instructions.

#include "kernel_table.hpp"
#include "vector.hpp"

namespace tilewise::measure::TILEWISE_ISA {
namespace {

#if defined(TILEWISE_ISA_IS_avx512)
using pairs = __m512bh;
pairs zeros() { return __builtin_bit_cast(pairs, _mm512_setzero_si512()); }
vec add_products(vec sum, pairs a, pairs b) { return _mm512_dpbf16_ps(sum, a, b); }
#else
using pairs = bfloat16x8_t;
pairs zeros() { return vreinterpretq_bf16_u16(vdupq_n_u16(0)); }
vec add_products(vec sum, pairs a, pairs b) { return vbfdotq_f32(sum, a, b); }
#endif

void chains_of_pairs(std::int64_t rounds) {
    vec chain[chains];
    TILEWISE_MEASURE_UNROLL
    for (int i = 0; i < chains; ++i) { chain[i] = broadcast(static_cast<float>(i)); }
    pairs factor = zeros();
    for (std::int64_t round = 0; round < rounds; ++round) {
        TILEWISE_MEASURE_UNROLL
        for (vec& value : chain) { value = add_products(value, factor, factor); }
        asm volatile("" : : : "memory");
    }
    TILEWISE_MEASURE_UNROLL
    for (vec& value : chain) { forget(value); }
}

}  // namespace

extern const pair_kernels pair_table;
const pair_kernels pair_table = {chains_of_pairs, 4 * lanes* chains};

}  // namespace tilewise::measure::TILEWISE_ISA

// What one core can do at most: the rate of independent fused multiply-adds, or products of bf16 pairs.

#ifndef TILEWISE_MEASURE_FMA_PEAK_HPP
#define TILEWISE_MEASURE_FMA_PEAK_HPP

#include <tilewise/attention.hpp>
#include <tilewise/isa.hpp>

namespace tilewise::measure {

/// One measurement of the f32 rate of one thread, in GFLOP/s by its CPU time: the best of a few rounds, a
/// few milliseconds in all. Repeat it next to what is compared with it, as clock rates drift. An instruction
/// set without fused multiply-adds (SSE2) multiplies and adds.
[[nodiscard]] double fma_peak_gflops(isa which);

/// The peak of the instructions that an arithmetic is made of: the same, or, for arithmetic::fastest, that of
/// the products of bf16 pairs. Only for what plan::arithmetic says.
[[nodiscard]] double peak_gflops(isa which, arithmetic how);

}  // namespace tilewise::measure

#endif

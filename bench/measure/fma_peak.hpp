// What one core can do at most: the rate of independent fused multiply-adds, or products of bf16 pairs.

#ifndef TILEWISE_MEASURE_FMA_PEAK_HPP
#define TILEWISE_MEASURE_FMA_PEAK_HPP

#include <cstdint>

#include <tilewise/attention.hpp>
#include <tilewise/isa.hpp>

namespace tilewise::measure {

/// One measurement of the f32 rate of one thread, in GFLOP/s by its CPU time: the best of a few rounds, a
/// few milliseconds in all. Repeat it next to what is compared with it, as clock rates drift. An instruction
/// set without fused multiply-adds (SSE2) multiplies and adds.
[[nodiscard]] double fma_peak_gflops(isa which);

/// What products and sums are made of: fused multiply-adds of f32 or f64, or products of bf16 pairs.
enum class numbers : std::uint8_t { f32, f64, bf16 };

/// Those of a call with queries of this type, and the arithmetic that plan::arithmetic says.
[[nodiscard]] numbers numbers_of(element_type queries, arithmetic how);

/// The same for any of them.
[[nodiscard]] double peak_gflops(isa which, numbers with);

/// Whether the active instruction set has products of bf16 pairs, in this build and on this processor.
[[nodiscard]] bool has_bf16_products();

}  // namespace tilewise::measure

#endif

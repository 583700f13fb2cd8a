// The instruction sets that the kernels are compiled for, and which of them runs.
//
// Every one gives the same bits; the choice decides speed only. Forcing one is for tests and benchmarks.

#ifndef TILEWISE_ISA_HPP
#define TILEWISE_ISA_HPP

#include <cstdint>
#include <span>
#include <string_view>

#include <tilewise/export.hpp>

namespace tilewise {

/// Instruction sets, slowest first for each architecture.
enum class isa : std::uint8_t {
    sse2,    ///< x86-64 baseline; no fused multiply-add, so a correctly rounded one is emulated (slow)
    avx2,    ///< AVX2, FMA3 and F16C
    avx512,  ///< AVX-512 F, BW, DQ and VL
    neon     ///< AArch64 baseline (Advanced SIMD)
};

/// The name of an instruction set: "sse2", "avx2", "avx512" or "neon".
[[nodiscard]] TILEWISE_API std::string_view isa_name(isa which) noexcept;

/// The instruction set of that name. Throws std::invalid_argument for an unknown name.
[[nodiscard]] TILEWISE_API isa isa_from_name(std::string_view name);

/// The instruction sets that this build has kernels for and that this CPU and operating system can run,
/// slowest first; never empty: where there is none, as a build without the baseline may find, this and all
/// functions that compute throw std::invalid_argument. The span refers to storage that lives as long as the
/// program.
[[nodiscard]] TILEWISE_API std::span<const isa> available_isas();

/// The instruction set that calls use: the one given to force_isa, else the one named by the environment
/// variable TILEWISE_ISA (read once, at the first use), else the last of available_isas().
/// Throws std::invalid_argument if TILEWISE_ISA is unknown or not available here. Thread-safe.
[[nodiscard]] TILEWISE_API isa active_isa();

/// Makes all calls that start from now on, in the whole process, use this instruction set. Throws
/// std::invalid_argument, and changes nothing, if it is not one of available_isas(). Thread-safe.
TILEWISE_API void force_isa(isa which);

/// Undoes force_isa.
TILEWISE_API void unforce_isa() noexcept;

}  // namespace tilewise

#endif

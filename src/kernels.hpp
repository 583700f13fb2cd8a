// From an instruction set and what is computed with to the kernels.

#ifndef TILEWISE_SRC_KERNELS_HPP
#define TILEWISE_SRC_KERNELS_HPP

#include <cstdint>

#include <tilewise/isa.hpp>

#include "kernels/interface.hpp"

namespace tilewise {

/// What kernels are compiled to compute with: f32; f32 and products of pairs of bf16, for
/// arithmetic::fastest; or f64.
enum class numbers : std::uint8_t { f32, bf16, f64 };

/// Whether this build has kernels that compute with f64.
[[nodiscard]] bool has_f64_kernels();

/// Whether this machine and build have arithmetic::fastest for one of available_isas().
[[nodiscard]] bool has_fastest(isa which);

/// The kernels of one of available_isas(), for numbers that it has.
const kernels::table& kernels_of(isa which, numbers with);

}  // namespace tilewise

#endif

// From an instruction set and an arithmetic to its kernels.

#ifndef TILEWISE_SRC_KERNELS_HPP
#define TILEWISE_SRC_KERNELS_HPP

#include <tilewise/element_type.hpp>
#include <tilewise/isa.hpp>

#include "kernels/interface.hpp"

namespace tilewise {

/// Whether this build has kernels that compute in f64.
[[nodiscard]] bool has_f64_kernels();

/// The kernels of one of available_isas() that compute in `real`: f32, or f64 if there are such.
const kernels::table& kernels_of(isa which, element_type real);

}  // namespace tilewise

#endif

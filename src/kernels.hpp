// From an instruction set to its kernels.

#ifndef TILEWISE_SRC_KERNELS_HPP
#define TILEWISE_SRC_KERNELS_HPP

#include <tilewise/isa.hpp>

#include "kernels/interface.hpp"

namespace tilewise {

/// The kernels of one of available_isas().
const kernels::table& kernels_of(isa which);

}  // namespace tilewise

#endif

// From an instruction set and an arithmetic to the kernels.

#ifndef TILEWISE_SRC_KERNELS_HPP
#define TILEWISE_SRC_KERNELS_HPP

#include <tilewise/attention.hpp>
#include <tilewise/isa.hpp>

#include "kernels/interface.hpp"

namespace tilewise {

/// The kernels of one of available_isas(), for an arithmetic that it has.
const kernels::table& kernels_of(isa which, arithmetic how);

/// Whether this machine and build have arithmetic::fastest for that one.
bool has_fastest(isa which);

}  // namespace tilewise

#endif

// The loops of one instruction set, found by its name.

#ifndef TILEWISE_MEASURE_ISA_TABLES_HPP
#define TILEWISE_MEASURE_ISA_TABLES_HPP

#include <tilewise/isa.hpp>

#include "kernel_table.hpp"

namespace tilewise::measure {

/// Throw std::invalid_argument if this build has no loops for that instruction set.
[[nodiscard]] const machine_kernels& machine_kernels_of(isa which);
[[nodiscard]] const pair_kernels& pair_kernels_of(isa which);
[[nodiscard]] const naive_kernels& naive_kernels_of(isa which);

}  // namespace tilewise::measure

#endif

// What the plan wants to know of the CPU; isa.cpp, which knows the CPU, answers.

#ifndef TILEWISE_SRC_CPU_HPP
#define TILEWISE_SRC_CPU_HPP

#include <cstddef>

namespace tilewise {

/// The size of a core's second-level cache; 1 MiB where it cannot be read.
std::size_t second_level_cache_bytes();

}  // namespace tilewise

#endif

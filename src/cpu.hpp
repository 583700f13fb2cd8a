// What the library wants to know of the CPU; isa.cpp, which knows the CPU, answers. The functions of isa.hpp
// throw what these note.

#ifndef TILEWISE_SRC_CPU_HPP
#define TILEWISE_SRC_CPU_HPP

#include <cstddef>
#include <span>
#include <string_view>
#include <tilewise/isa.hpp>

namespace tilewise {

/// The size of a core's second-level cache; 1 MiB where it cannot be read.
std::size_t second_level_cache_bytes();

[[nodiscard]] bool find_isa(std::string_view name, isa& which);
[[nodiscard]] bool find_available_isas(std::span<const isa>& available);
[[nodiscard]] bool find_active_isa(isa& which);
[[nodiscard]] bool set_forced_isa(isa which);

}  // namespace tilewise

#endif

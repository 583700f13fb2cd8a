// Numbers as a storage type has them in memory.

#ifndef TILEWISE_MEASURE_STORED_HPP
#define TILEWISE_MEASURE_STORED_HPP

#include <cstddef>
#include <span>
#include <vector>

#include <tilewise/element_type.hpp>

namespace tilewise::measure {

/// The bytes of these numbers in any type that q, k and v can have; whole blocks of them. What needs a scale
/// besides (i8, FP8) is the number itself, cut to it: the caller scales.
[[nodiscard]] std::vector<std::byte> stored_as(element_type type, std::span<const float> values);

/// Whether elements of a type are multiplied by scales that lie in memory of their own.
[[nodiscard]] bool has_scales(element_type type);

/// The bytes of so many elements.
[[nodiscard]] double bytes_of(element_type type, double elements);

/// "q8_0"; "f32" for types that no tensor of q, k, v has.
[[nodiscard]] const char* name_of(element_type type);

}  // namespace tilewise::measure

#endif

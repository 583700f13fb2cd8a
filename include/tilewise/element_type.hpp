// The types in which elements are stored.

#ifndef TILEWISE_ELEMENT_TYPE_HPP
#define TILEWISE_ELEMENT_TYPE_HPP

#include <cstdint>

namespace tilewise {

/// How one element is stored. What is not f32 is converted to f32 exactly when it is read; a result is
/// computed in f32, and rounded once, to the nearest even, when it is written.
enum class element_type : std::uint8_t {
    f32,      ///< IEEE 754 binary32
    f16,      ///< IEEE 754 binary16 (float16 in half.hpp)
    bf16,     ///< bfloat16: the upper half of a binary32 (bfloat16 in half.hpp)
    i32,      ///< signed integer, 32 bits
    boolean,  ///< one byte, true if it is not 0
    bit       ///< one bit, the least significant of a byte first; data is the byte of element 0
};

/// The size of one element, in bits.
[[nodiscard]] constexpr std::int64_t element_bits(element_type type) {
    switch (type) {
        case element_type::f16:
        case element_type::bf16:
            return 16;
        case element_type::boolean:
            return 8;
        case element_type::bit:
            return 1;
        default:
            return 32;
    }
}

}  // namespace tilewise

#endif

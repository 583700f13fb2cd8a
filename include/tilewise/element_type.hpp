// The types in which elements are stored.

#ifndef TILEWISE_ELEMENT_TYPE_HPP
#define TILEWISE_ELEMENT_TYPE_HPP

#include <cstdint>

namespace tilewise {

/// How one element is stored. What is not f32 is converted to f32 when it is read: exactly, or, where there
/// are scales, as scale * number with one rounding. A result is computed in f32, and rounded once, to the
/// nearest even, when it is written. Where q, k, v and out are f64, all is computed in f64 instead.
enum class element_type : std::uint8_t {
    f32,      ///< IEEE 754 binary32
    f16,      ///< IEEE 754 binary16 (float16 in half.hpp)
    bf16,     ///< bfloat16: the upper half of a binary32 (bfloat16 in half.hpp)
    q8_0,     ///< ggml's Q8_0 (q8_0_block in quantized.hpp); k and v only, as all below that have scales
    q4_0,     ///< ggml's Q4_0 (q4_0_block)
    i8,       ///< signed integer, 8 bits, times one of the view's scales
    e4m3,     ///< FP8 (float8_e4m3), times one of the view's scales
    e5m2,     ///< FP8 (float8_e5m2), times one of the view's scales
    i32,      ///< signed integer, 32 bits
    boolean,  ///< one byte, true if it is not 0
    bit,      ///< one bit, the least significant of a byte first; data is the byte of element 0
    f64       ///< IEEE 754 binary64: q, k, v and out together, and results and bias with them
};

/// Elements are stored in blocks of so many, side by side along the last axis, of so many bytes.
struct element_block {
    std::int64_t elements;
    std::int64_t bytes;
};

[[nodiscard]] constexpr element_block block_of(element_type type) {
    switch (type) {
        case element_type::f16:
        case element_type::bf16:
            return {1, 2};
        case element_type::q8_0:
            return {32, 34};
        case element_type::q4_0:
            return {32, 18};
        case element_type::i8:
        case element_type::e4m3:
        case element_type::e5m2:
        case element_type::boolean:
            return {1, 1};
        case element_type::bit:
            return {8, 1};
        case element_type::f64:
            return {1, 8};
        default:
            return {1, 4};
    }
}

}  // namespace tilewise

#endif

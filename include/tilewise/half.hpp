// Storage for 16-bit floating-point numbers, which C++20 has no types for. These hold and convert; they do
// not compute. Any other type with the same bits (_Float16, __bf16, a std::uint16_t of a file) may be stored
// where they are expected.

#ifndef TILEWISE_HALF_HPP
#define TILEWISE_HALF_HPP

#include <bit>
#include <cstdint>

namespace tilewise {

namespace detail {

/// An integer divided by 2^shift (1 to 31), rounded to the nearest, ties to even.
[[nodiscard]] constexpr std::uint32_t shift_right_to_nearest(std::uint32_t value, std::uint32_t shift) {
    const std::uint32_t odd = value >> shift & 1U;
    return (value + (1U << (shift - 1U)) - 1U + odd) >> shift;
}

[[nodiscard]] constexpr std::uint16_t f16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t exponent = magnitude >> 23U;
    if (magnitude > 0x7f800000U) { return 0x7e00U; }
    std::uint32_t rounded = 0;
    if (exponent >= 143) {  // 2^16 and more
        rounded = 0x7c00U;
    } else if (exponent >= 113) {  // normal; may carry to infinity
        rounded = shift_right_to_nearest(magnitude - 0x38000000U, 13);
    } else if (exponent >= 102) {  // subnormal: the last place is 2^-24
        rounded = shift_right_to_nearest((bits & 0x7fffffU) | 0x800000U, 126U - exponent);
    }
    return static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | rounded);
}

[[nodiscard]] constexpr float f32_of_f16(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16U;
    const std::uint32_t exponent = half >> 10U & 31U;
    const std::uint32_t fraction = half & 0x3ffU;
    if (exponent == 31) {
        return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U | (fraction == 0 ? 0U : 0x400000U));
    }
    if (exponent > 0) { return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U); }
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

[[nodiscard]] constexpr std::uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) { return 0x7fc0U; }
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

}  // namespace detail

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits; up to 65504, down to 2^-24.
struct float16 {
    std::uint16_t bits;

    float16() = default;
    /// Rounds to the nearest, ties to even: beyond the range to infinity, small values to subnormals or a
    /// zero of the same sign. NaN becomes the quiet NaN 0x7e00. The caller's rounding mode does not matter.
    explicit constexpr float16(float value) : bits(detail::f16_of(value)) {}
    /// Exact; NaN stays NaN.
    explicit constexpr operator float() const { return detail::f32_of_f16(bits); }
};

/// bfloat16: 1 sign, 8 exponent and 7 fraction bits; the range of float.
struct bfloat16 {
    std::uint16_t bits;

    bfloat16() = default;
    /// Rounds as float16 does; NaN becomes the quiet NaN 0x7fc0.
    explicit constexpr bfloat16(float value) : bits(detail::bf16_of(value)) {}
    /// Exact; NaN stays NaN.
    explicit constexpr operator float() const {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
    }
};

}  // namespace tilewise

#endif

// Storage for 16-bit floating-point numbers, which C++20 has no types for. These hold and convert; they do
// not compute. Any other type with the same bits (_Float16, __bf16, a std::uint16_t of a file) may be stored
// where they are expected.

#ifndef TILEWISE_HALF_HPP
#define TILEWISE_HALF_HPP

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tilewise {

namespace detail {

/// An integer divided by 2^shift (1 to 31), rounded to the nearest, ties to even.
[[nodiscard]] constexpr std::uint32_t shift_right_to_nearest(std::uint32_t value, std::uint32_t shift) {
    const std::uint32_t odd = value >> shift & 1U;
    return (value + (1U << (shift - 1U)) - 1U + odd) >> shift;
}

// Formats with fewer exponent bits than binary32: so many fraction bits, and this exponent bias. Magnitudes
// are bits without the sign.

/// A binary32 magnitude to the format, as if its exponents had no upper end.
[[nodiscard]] constexpr std::uint32_t narrow(std::uint32_t magnitude, std::uint32_t fraction_bits,
                                             std::uint32_t bias) {
    const std::uint32_t exponent = magnitude >> 23U;
    const std::uint32_t dropped = 23U - fraction_bits;
    const std::uint32_t first_normal = 128U - bias;
    if (exponent >= first_normal) {
        return shift_right_to_nearest(magnitude - ((first_normal - 1U) << 23U), dropped);
    }
    const std::uint32_t shift = dropped + first_normal - exponent;
    const std::uint32_t significand = (magnitude & 0x7fffffU) | 0x800000U;
    return shift > 24U ? 0U : shift_right_to_nearest(significand, shift);
}

/// The magnitude of a finite number of the format to binary32.
[[nodiscard]] constexpr std::uint32_t widen(std::uint32_t magnitude, std::uint32_t fraction_bits,
                                            std::uint32_t bias) {
    const std::uint32_t exponent = magnitude >> fraction_bits;
    if (exponent > 0) { return (magnitude << (23U - fraction_bits)) + ((127U - bias) << 23U); }
    const auto last_place = std::bit_cast<float>((128U - bias - fraction_bits) << 23U);
    return std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * last_place);
}

[[nodiscard]] constexpr std::uint16_t f16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) { return 0x7e00U; }
    const std::uint32_t rounded = std::min(narrow(magnitude, 10, 15), 0x7c00U);
    return static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | rounded);
}

[[nodiscard]] constexpr float f32_of_f16(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16U;
    const std::uint32_t magnitude = half & 0x7fffU;
    if (magnitude < 0x7c00U) { return std::bit_cast<float>(sign | widen(magnitude, 10, 15)); }
    const std::uint32_t quiet = magnitude == 0x7c00U ? 0U : 0x400000U;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (magnitude & 0x3ffU) << 13U);
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

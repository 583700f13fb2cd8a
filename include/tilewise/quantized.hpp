// Storage of quantised keys and values, bit for bit as files and caches have it. quantize.hpp fills it.

#ifndef TILEWISE_QUANTIZED_HPP
#define TILEWISE_QUANTIZED_HPP

#include <algorithm>
#include <bit>
#include <cstdint>

#include <tilewise/half.hpp>

namespace tilewise {

namespace detail {

[[nodiscard]] constexpr std::uint8_t e4m3_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t rounded = magnitude > 0x7f800000U ? 0x7fU : std::min(narrow(magnitude, 3, 7), 0x7eU);
    return static_cast<std::uint8_t>((bits >> 24U & 0x80U) | rounded);
}

[[nodiscard]] constexpr std::uint8_t e5m2_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t rounded = magnitude > 0x7f800000U ? 0x7eU : std::min(narrow(magnitude, 2, 15), 0x7cU);
    return static_cast<std::uint8_t>((bits >> 24U & 0x80U) | rounded);
}

}  // namespace detail

/// FP8 E4M3 of the Open Compute Project (OFP8, 2023): up to 448, down to 2^-9; no infinity, NaN is 0x7f and
/// 0xff. One of the view's scales multiplies it.
struct float8_e4m3 {
    std::uint8_t bits;

    float8_e4m3() = default;
    /// Rounds to the nearest, ties to even; beyond the range, infinity included, to 448.
    explicit constexpr float8_e4m3(float value) : bits(detail::e4m3_of(value)) {}
    /// Exact.
    explicit constexpr operator float() const {
        const std::uint32_t magnitude = bits & 0x7fU;
        const std::uint32_t wide = magnitude == 0x7fU ? 0x7fc00000U : detail::widen(magnitude, 3, 7);
        return std::bit_cast<float>((bits & 0x80U) << 24U | wide);
    }
};

/// FP8 E5M2: the upper half of a binary16; up to 57344, down to 2^-16, with infinity and NaN.
struct float8_e5m2 {
    std::uint8_t bits;

    float8_e5m2() = default;
    /// Rounds to the nearest, ties to even; beyond the range to infinity.
    explicit constexpr float8_e5m2(float value) : bits(detail::e5m2_of(value)) {}
    /// Exact.
    explicit constexpr operator float() const {
        return detail::f32_of_f16(static_cast<std::uint16_t>(bits << 8U));
    }
};

/// ggml's Q8_0: 32 values of head_dim; value i is scale * values[i].
struct q8_0_block {
    float16 scale;
    std::int8_t values[32];
};
static_assert(sizeof(q8_0_block) == 34);

/// ggml's Q4_0: value i is scale * (n - 8), where n is the low half of values[i] for i below 16, and the high
/// half of values[i - 16] from there on.
struct q4_0_block {
    float16 scale;
    std::uint8_t values[16];
};
static_assert(sizeof(q4_0_block) == 18);

}  // namespace tilewise

#endif

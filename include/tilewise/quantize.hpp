// Quantising keys and values, to the storage types of quantized.hpp. What is stored is the same to the last
// bit everywhere.
//
// Scales are chosen by the largest magnitude; numbers are value / scale (as it is stored), rounded to the
// nearest, ties to even, and kept in range. Where values are all 0, or so small that the scale is, so are the
// numbers. Where one is NaN or infinite, the scale is NaN, and so are all values that share it.
//
// All functions throw std::invalid_argument if sizes do not fit. Thread-safe.

#ifndef TILEWISE_QUANTIZE_HPP
#define TILEWISE_QUANTIZE_HPP

#include <cstdint>
#include <span>

#include <tilewise/export.hpp>
#include <tilewise/quantized.hpp>
#include <tilewise/status.hpp>

namespace tilewise {

/// 32 values to a block, one after the other. The scale is f16(largest / 127), numbers are from -127 to 127.
TILEWISE_API void quantize_q8_0(std::span<const float> values, std::span<q8_0_block> blocks);

/// The same with the scale f16(largest / -8), where `largest` has its sign: numbers are from -8 to 7, and the
/// largest value is at their end that is farther from 0.
TILEWISE_API void quantize_q4_0(std::span<const float> values, std::span<q4_0_block> blocks);

// For types with scales in memory of their own, `values` are the tokens of one head, [tokens][head_dim], and
// so are the numbers.

/// The scale of a token is largest / 127 (or the next smaller, lest 127 times it be infinite), numbers are
/// from -127 to 127.
TILEWISE_API void quantize_i8_per_token(std::span<const float> values, std::span<std::int8_t> numbers,
                                        std::span<float> scales_of_tokens);

/// The same with one scale for each index of head_dim.
TILEWISE_API void quantize_i8_per_channel(std::span<const float> values, std::span<std::int8_t> numbers,
                                          std::span<float> scales_of_channels);

/// Returns the one scale of the head, largest / 448 (or the next smaller).
[[nodiscard]] TILEWISE_API float quantize_e4m3(std::span<const float> values, std::span<float8_e4m3> numbers);

/// Returns the one scale of the head, largest / 57344 (or the next smaller).
[[nodiscard]] TILEWISE_API float quantize_e5m2(std::span<const float> values, std::span<float8_e5m2> numbers);

// The same, and return what these throw (status.hpp).
TILEWISE_API status try_quantize_q8_0(std::span<const float> values, std::span<q8_0_block> blocks) noexcept;
TILEWISE_API status try_quantize_q4_0(std::span<const float> values, std::span<q4_0_block> blocks) noexcept;
TILEWISE_API status try_quantize_i8_per_token(std::span<const float> values, std::span<std::int8_t> numbers,
                                              std::span<float> scales_of_tokens) noexcept;
TILEWISE_API status try_quantize_i8_per_channel(std::span<const float> values, std::span<std::int8_t> numbers,
                                                std::span<float> scales_of_channels) noexcept;
TILEWISE_API status try_quantize_e4m3(std::span<const float> values, std::span<float8_e4m3> numbers,
                                      float& scale) noexcept;
TILEWISE_API status try_quantize_e5m2(std::span<const float> values, std::span<float8_e5m2> numbers,
                                      float& scale) noexcept;

}  // namespace tilewise

#endif

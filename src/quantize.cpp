#include <tilewise/quantize.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "float_environment.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

constexpr std::size_t block_values = 32;
constexpr float largest_f16 = 65504.0F;

bool require_blocks(std::span<const float> values, std::size_t blocks) {
    if (values.size() / block_values != blocks || values.size() % block_values != 0) {
        return refuse("quantize: ", values.size(), " values and ", blocks, " blocks given, it must be ",
                      block_values, " values for each block");
    }
    return true;
}

/// Every `step`-th value of some, from the first on.
struct strided_values {
    std::span<const float> all;
    std::size_t step = 1;
    [[nodiscard]] std::size_t size() const { return (all.size() + step - 1) / step; }
    float operator[](std::size_t i) const { return all[i * step]; }
};

/// The value of the largest magnitude; NaN if one is NaN or infinite.
float largest_of(const strided_values& values) {
    float largest = 0.0F;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) { return std::numeric_limits<float>::quiet_NaN(); }
        if (std::fabs(values[i]) > std::fabs(largest)) { largest = values[i]; }
    }
    return largest;
}

/// A scale as f16; one that is too large for it is the largest.
float16 stored_scale(float scale) {
    return float16(std::isnan(scale) ? scale : std::clamp(scale, -largest_f16, largest_f16));
}

/// value / scale as an integer in a range.
int quantum(float value, float scale, int lowest, int highest) {
    if (!(std::fabs(scale) > 0.0F)) { return 0; }
    const float rounded = std::nearbyint(value / scale);
    return static_cast<int>(std::clamp(rounded, static_cast<float>(lowest), static_cast<float>(highest)));
}

/// Values, as many numbers, and scales that each serve as many of them.
bool require_scales(std::size_t values, std::size_t numbers, std::size_t scales) {
    if (values != numbers || (scales == 0 ? values != 0 : values % scales != 0)) {
        return refuse("quantize: ", values, " values, ", numbers, " numbers and ", scales,
                      " scales given, it must be one number for each value, and as many for each scale");
    }
    return true;
}

/// The scale that takes numbers up to `most` to the largest value, and none of them to infinity.
float scale_for(const strided_values& values, float most) {
    const float scale = std::fabs(largest_of(values)) / most;
    return std::isinf(scale * most) ? std::nextafter(scale, 0.0F) : scale;
}

/// Numbers with one scale, `step` apart.
float quantize_i8(const strided_values& values, std::int8_t* numbers) {
    const float scale = scale_for(values, 127.0F);
    for (std::size_t i = 0; i < values.size(); ++i) {
        numbers[i * values.step] = static_cast<std::int8_t>(quantum(values[i], scale, -127, 127));
    }
    return scale;
}

/// Numbers of a floating-point type that goes up to `most`.
template <class Number>
bool quantize_float8(std::span<const float> values, std::span<Number> numbers, float most, float& scale) {
    if (values.size() != numbers.size()) {
        return refuse("quantize: ", values.size(), " values and ", numbers.size(),
                      " numbers given, it must be one number for each value");
    }
    const float_environment standard;
    scale = scale_for({values}, most);
    for (std::size_t i = 0; i < values.size(); ++i) {
        numbers[i] = Number(scale > 0.0F ? values[i] / scale : 0.0F);
    }
    return true;
}

}  // namespace

status try_quantize_q8_0(std::span<const float> values, std::span<q8_0_block> blocks) noexcept {
    if (!require_blocks(values, blocks.size())) { return status_of(false); }
    const float_environment standard;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const float> part = values.subspan(b * block_values, block_values);
        q8_0_block& block = blocks[b];
        block.scale = stored_scale(std::fabs(largest_of({part})) / 127.0F);
        const auto scale = static_cast<float>(block.scale);
        for (std::size_t i = 0; i < block_values; ++i) {
            block.values[i] = static_cast<std::int8_t>(quantum(part[i], scale, -127, 127));
        }
    }
    return {};
}

status try_quantize_q4_0(std::span<const float> values, std::span<q4_0_block> blocks) noexcept {
    if (!require_blocks(values, blocks.size())) { return status_of(false); }
    const float_environment standard;
    constexpr std::size_t half = block_values / 2;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const float> part = values.subspan(b * block_values, block_values);
        q4_0_block& block = blocks[b];
        block.scale = stored_scale(largest_of({part}) / -8.0F);
        const auto scale = static_cast<float>(block.scale);
        for (std::size_t i = 0; i < half; ++i) {
            const int low = quantum(part[i], scale, -8, 7) + 8;
            const int high = quantum(part[i + half], scale, -8, 7) + 8;
            block.values[i] = static_cast<std::uint8_t>(low | high << 4);
        }
    }
    return {};
}

status try_quantize_i8_per_token(std::span<const float> values, std::span<std::int8_t> numbers,
                                 std::span<float> scales_of_tokens) noexcept {
    if (!require_scales(values.size(), numbers.size(), scales_of_tokens.size())) { return status_of(false); }
    const float_environment standard;
    for (std::size_t t = 0; t < scales_of_tokens.size(); ++t) {
        const std::size_t head_dim = values.size() / scales_of_tokens.size();
        scales_of_tokens[t] =
            quantize_i8({values.subspan(t * head_dim, head_dim)}, numbers.data() + t * head_dim);
    }
    return {};
}

status try_quantize_i8_per_channel(std::span<const float> values, std::span<std::int8_t> numbers,
                                   std::span<float> scales_of_channels) noexcept {
    if (!require_scales(values.size(), numbers.size(), scales_of_channels.size())) {
        return status_of(false);
    }
    const float_environment standard;
    const std::size_t head_dim = scales_of_channels.size();
    std::fill(scales_of_channels.begin(), scales_of_channels.end(), 0.0F);
    for (std::size_t i = 0; i < std::min(head_dim, values.size()); ++i) {
        scales_of_channels[i] = quantize_i8({values.subspan(i), head_dim}, numbers.data() + i);
    }
    return {};
}

status try_quantize_e4m3(std::span<const float> values, std::span<float8_e4m3> numbers,
                         float& scale) noexcept {
    return status_of(quantize_float8(values, numbers, 448.0F, scale));
}

status try_quantize_e5m2(std::span<const float> values, std::span<float8_e5m2> numbers,
                         float& scale) noexcept {
    return status_of(quantize_float8(values, numbers, 57344.0F, scale));
}

void quantize_q8_0(std::span<const float> values, std::span<q8_0_block> blocks) {
    raise_unless(try_quantize_q8_0(values, blocks));
}

void quantize_q4_0(std::span<const float> values, std::span<q4_0_block> blocks) {
    raise_unless(try_quantize_q4_0(values, blocks));
}

void quantize_i8_per_token(std::span<const float> values, std::span<std::int8_t> numbers,
                           std::span<float> scales_of_tokens) {
    raise_unless(try_quantize_i8_per_token(values, numbers, scales_of_tokens));
}

void quantize_i8_per_channel(std::span<const float> values, std::span<std::int8_t> numbers,
                             std::span<float> scales_of_channels) {
    raise_unless(try_quantize_i8_per_channel(values, numbers, scales_of_channels));
}

float quantize_e4m3(std::span<const float> values, std::span<float8_e4m3> numbers) {
    float scale = 0.0F;
    raise_unless(try_quantize_e4m3(values, numbers, scale));
    return scale;
}

float quantize_e5m2(std::span<const float> values, std::span<float8_e5m2> numbers) {
    float scale = 0.0F;
    raise_unless(try_quantize_e5m2(values, numbers, scale));
    return scale;
}

}  // namespace tilewise

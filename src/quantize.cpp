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

void require_blocks(std::span<const float> values, std::size_t blocks) {
    if (values.size() / block_values != blocks || values.size() % block_values != 0) {
        refuse("quantize: ", values.size(), " values and ", blocks, " blocks given, it must be ",
               block_values, " values for each block");
    }
}

/// The value of the largest magnitude; NaN if one is NaN or infinite.
float largest_of(std::span<const float> values) {
    float largest = 0.0F;
    for (const float value : values) {
        if (!std::isfinite(value)) { return std::numeric_limits<float>::quiet_NaN(); }
        if (std::fabs(value) > std::fabs(largest)) { largest = value; }
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

}  // namespace

void quantize_q8_0(std::span<const float> values, std::span<q8_0_block> blocks) {
    require_blocks(values, blocks.size());
    const float_environment standard;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const float> part = values.subspan(b * block_values, block_values);
        q8_0_block& block = blocks[b];
        block.scale = stored_scale(std::fabs(largest_of(part)) / 127.0F);
        const auto scale = static_cast<float>(block.scale);
        for (std::size_t i = 0; i < block_values; ++i) {
            block.values[i] = static_cast<std::int8_t>(quantum(part[i], scale, -127, 127));
        }
    }
}

void quantize_q4_0(std::span<const float> values, std::span<q4_0_block> blocks) {
    require_blocks(values, blocks.size());
    const float_environment standard;
    constexpr std::size_t half = block_values / 2;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const float> part = values.subspan(b * block_values, block_values);
        q4_0_block& block = blocks[b];
        block.scale = stored_scale(largest_of(part) / -8.0F);
        const auto scale = static_cast<float>(block.scale);
        for (std::size_t i = 0; i < half; ++i) {
            const int low = quantum(part[i], scale, -8, 7) + 8;
            const int high = quantum(part[i + half], scale, -8, 7) + 8;
            block.values[i] = static_cast<std::uint8_t>(low | high << 4);
        }
    }
}

}  // namespace tilewise

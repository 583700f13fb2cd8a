#include "explain_tiles.hpp"

#include <cmath>
#include <limits>

#include "contract.hpp"

namespace tilewise::cli {
namespace {

/// 2^(score * factor - maximum), as the contract's step 3 has it.
float weight_of(float score, float factor, float maximum) {
    using constant = contract::binary32;
    const float whole = std::fma(score, factor, constant::rounding_shift) - constant::rounding_shift;
    const float fraction = std::fma(score, factor, -whole);
    float power = 0.0F;
    for (int i = 5; i >= 0; --i) { power = std::fma(fraction, power, constant::exp2_coefficients[i]); }
    return std::ldexp(std::fma(fraction, power, 1.0F), static_cast<int>(whole - maximum));
}

}  // namespace

std::vector<tile_state> walk_tiles(const pair& query, const std::vector<pair>& keys,
                                   const std::vector<pair>& values, float scale) {
    const auto factor = static_cast<float>(contract::scaling_for(scale, false).exponent);
    std::vector<tile_state> states;
    tile_state now;
    now.maximum = -std::numeric_limits<float>::infinity();
    for (std::size_t j = 0; j < keys.size(); ++j) {
        const float score = std::fma(keys[j][1], query[1], keys[j][0] * query[0]);
        const float before = now.maximum;
        now.exponent = score * factor;
        now.maximum = std::fmax(before, std::ceil(now.exponent));
        now.rescale = j == 0 ? 0.0F : std::exp2(before - now.maximum);
        now.weight = weight_of(score, factor, now.maximum);
        now.sum = now.sum * now.rescale + now.weight;
        for (std::size_t x = 0; x < 2; ++x) {
            now.output[x] = std::fma(values[j][x], now.weight, now.output[x] * now.rescale);
        }
        states.push_back(now);
    }
    return states;
}

}  // namespace tilewise::cli

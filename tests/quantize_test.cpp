// Quantising: what is stored, against a model, and how far that is from the values.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "refusals.hpp"
#include "support.hpp"

using namespace tilewise_tests;

namespace {

constexpr float largest_float = std::numeric_limits<float>::max();

/// Blocks of 32 values: of all sizes, with ties, zeros, and values that are not finite.
std::vector<std::array<float, 32>> blocks_to_store() {
    std::vector<std::array<float, 32>> all;
    random_source random(41);
    for (const float size : {1.0F, 1e-3F, 1e3F, 1e-6F, 1e-8F, 1e-40F, 1e8F, 1e38F, 0.0F}) {
        for (int repeat = 0; repeat < 20; ++repeat) {
            std::array<float, 32> block{};
            for (float& value : block) { value = size * random.normal(); }
            all.push_back(block);
        }
    }
    std::array<float, 32> ties{};
    for (std::size_t i = 0; i < 32; ++i) { ties[i] = static_cast<float>(i) - 15.5F; }
    ties[0] = 127.0F;
    all.push_back(ties);
    ties[0] = -127.0F;
    all.push_back(ties);
    for (const float special : {infinity, -infinity, quiet_nan, largest_float, -largest_float}) {
        ties[7] = special;
        all.push_back(ties);
    }
    return all;
}

bool all_finite(const std::array<float, 32>& block) {
    return std::all_of(block.begin(), block.end(), [](float value) { return std::isfinite(value); });
}

float largest_magnitude(const std::array<float, 32>& block) {
    float largest = 0.0F;
    for (const float value : block) { largest = std::max(largest, std::fabs(value)); }
    return largest;
}

/// Checks that a stored value is as near as rounding to multiples of the scale can be.
void check_near(float value, float stored, float scale) {
    const double error = std::fabs(static_cast<double>(value) - static_cast<double>(stored));
    CHECK(error <= 0.501 * static_cast<double>(scale));
}

}  // namespace

TEST_CASE("quantize: q8_0") {
    for (const auto& values : blocks_to_store()) {
        tilewise::q8_0_block block{};
        tilewise::quantize_q8_0(values, {&block, 1});
        const auto scale = static_cast<float>(block.scale);
        if (!all_finite(values)) {
            CHECK(std::isnan(scale));
            continue;
        }
        const float wanted = std::min(largest_magnitude(values) / 127.0F, 65504.0F);
        CHECK(block.scale.bits == tilewise::float16(wanted).bits);
        for (std::size_t i = 0; i < 32; ++i) {
            const double exact = scale == 0.0F ? 0.0 : std::nearbyint(static_cast<double>(values[i] / scale));
            CHECK(block.values[i] == static_cast<int>(std::clamp(exact, -127.0, 127.0)));
            // Elsewhere the scale as f16 is far from the wanted one.
            if (scale > 1e-4F && scale < 65504.0F) {
                check_near(values[i], scale * static_cast<float>(block.values[i]), scale);
            }
        }
    }
}

TEST_CASE("quantize: q4_0") {
    for (const auto& values : blocks_to_store()) {
        tilewise::q4_0_block block{};
        tilewise::quantize_q4_0(values, {&block, 1});
        const auto scale = static_cast<float>(block.scale);
        if (!all_finite(values)) {
            CHECK(std::isnan(scale));
            continue;
        }
        const float magnitude = largest_magnitude(values);
        const float wanted = std::min(magnitude / 8.0F, 65504.0F);
        const bool is_positive = std::find(values.begin(), values.end(), magnitude) != values.end();
        const bool is_negative = std::find(values.begin(), values.end(), -magnitude) != values.end();
        CHECK((is_positive || block.scale.bits == tilewise::float16(wanted).bits));
        CHECK((is_negative || block.scale.bits == tilewise::float16(-wanted).bits));
        for (std::size_t i = 0; i < 32; ++i) {
            const int number = (i < 16 ? block.values[i] % 16 : block.values[i - 16] / 16) - 8;
            const double exact = scale == 0.0F ? 0.0 : std::nearbyint(static_cast<double>(values[i] / scale));
            CHECK(number == static_cast<int>(std::clamp(exact, -8.0, 7.0)));
            // 8 is missing.
            if (std::fabs(scale) > 1e-4F && std::fabs(scale) < 65504.0F && exact < 8.0) {
                check_near(values[i], scale * static_cast<float>(number), std::fabs(scale));
            }
        }
    }
}

TEST_CASE("quantize: i8 per token and per channel") {
    // Every block is a token of 32 channels.
    const auto tokens = blocks_to_store();
    std::vector<float> values;
    for (const auto& token : tokens) { values.insert(values.end(), token.begin(), token.end()); }
    std::vector<std::int8_t> numbers(values.size());
    std::vector<float> scales(tokens.size());
    tilewise::quantize_i8_per_token(values, numbers, scales);
    std::size_t place = 0;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        if (!all_finite(tokens[t])) {
            CHECK(std::isnan(scales[t]));
            place += 32;
            continue;
        }
        const float wanted = largest_magnitude(tokens[t]) / 127.0F;
        CHECK(scales[t] == (std::isinf(wanted * 127.0F) ? std::nextafter(wanted, 0.0F) : wanted));
        for (const float value : tokens[t]) {
            const auto number = static_cast<float>(numbers[place++]);
            CHECK(std::fabs(number) <= 127.0F);
            if (scales[t] > 1e-36F) { check_near(value, scales[t] * number, scales[t]); }
        }
    }

    const std::size_t finite = 180;  // tokens
    std::vector<float> channels(32);
    tilewise::quantize_i8_per_channel(std::span(values).first(finite * 32),
                                      std::span(numbers).first(finite * 32), channels);
    for (std::size_t i = 0; i < 32; ++i) {
        float largest = 0.0F;
        for (std::size_t t = 0; t < finite; ++t) { largest = std::max(largest, std::fabs(tokens[t][i])); }
        CHECK(channels[i] == largest / 127.0F);
        for (std::size_t t = 0; t < finite; ++t) {
            check_near(tokens[t][i], channels[i] * static_cast<float>(numbers[t * 32 + i]), channels[i]);
        }
    }
}

TEST_CASE("quantize: FP8 numbers round to the nearest even") {
    const auto check = [](auto number, std::uint8_t bits_of_largest, float most, float beyond) {
        using float8 = decltype(number);
        const auto value = [](unsigned bits) {
            return static_cast<float>(std::bit_cast<float8>(static_cast<std::uint8_t>(bits)));
        };
        for (unsigned bits = 0; bits < bits_of_largest; ++bits) {
            const float middle = (value(bits) + value(bits + 1)) / 2;
            const unsigned even = bits + bits % 2;
            CHECK(float8(value(bits)).bits == bits);
            CHECK(float8(std::nextafter(middle, 0.0F)).bits == bits);
            CHECK(float8(middle).bits == even);
            CHECK(float8(-middle).bits == even + 128);
            CHECK(float8(std::nextafter(middle, infinity)).bits == bits + 1);
        }
        CHECK(value(bits_of_largest) == most);
        for (const float large : {largest_float, infinity}) {
            CHECK(static_cast<float>(float8(large)) == beyond);
        }
        CHECK(std::isnan(static_cast<float>(float8(quiet_nan))));
    };
    check(tilewise::float8_e4m3(), 0x7e, 448.0F, 448.0F);
    check(tilewise::float8_e5m2(), 0x7b, 57344.0F, infinity);
}

TEST_CASE("quantize: FP8") {
    const auto check = [](const auto& quantize, auto number, float most, double half_place,
                          double last_place) {
        for (const auto& values : blocks_to_store()) {
            std::vector<decltype(number)> numbers(32);
            const float scale = quantize(values, numbers);
            if (!all_finite(values)) {
                CHECK(std::isnan(scale));
                continue;
            }
            const float wanted = largest_magnitude(values) / most;
            CHECK(scale == (std::isinf(wanted * most) ? std::nextafter(wanted, 0.0F) : wanted));
            for (std::size_t i = 0; i < 32 && scale > 1e-34F; ++i) {
                const double exact = static_cast<double>(values[i]) / static_cast<double>(scale);
                const double error = std::fabs(static_cast<double>(static_cast<float>(numbers[i])) - exact);
                CHECK(error <= 1.001 * std::max(half_place * std::fabs(exact), last_place / 2));
            }
        }
    };
    check([](auto values, auto& numbers) { return tilewise::quantize_e4m3(values, numbers); },
          tilewise::float8_e4m3(), 448.0F, 0x1p-4, 0x1p-9);
    check([](auto values, auto& numbers) { return tilewise::quantize_e5m2(values, numbers); },
          tilewise::float8_e5m2(), 57344.0F, 0x1p-3, 0x1p-16);
}

TEST_CASE("quantize: sizes that do not fit") {
    const std::vector<float> values(65);
    std::vector<tilewise::q8_0_block> blocks(2);
    const std::span<const float> all(values);
    CHECK(refusal_of([&] { tilewise::quantize_q8_0(all, blocks); }) ==
          "tilewise: quantize: 65 values and 2 blocks given, it must be 32 values for each block");
    CHECK(refusal_of([&] { tilewise::quantize_q8_0(all.first(32), blocks); }) != "");
    CHECK(refusal_of([&] { tilewise::quantize_q8_0(all.first(64), blocks); }) == "");
    CHECK(refusal_of([] { tilewise::quantize_q8_0({}, {}); }) == "");

    std::vector<std::int8_t> numbers(64);
    std::vector<float> scales(3);
    CHECK(
        refusal_of([&] { tilewise::quantize_i8_per_token(all.first(64), numbers, scales); }) ==
        "tilewise: quantize: 64 values, 64 numbers and 3 scales given, it must be one number for each value, "
        "and as many for each scale");
    CHECK(refusal_of([&] { tilewise::quantize_i8_per_channel(all, numbers, scales); }) != "");
    CHECK(refusal_of([&] { tilewise::quantize_i8_per_channel({}, {}, scales); }) == "");
    CHECK(refusal_of([] { tilewise::quantize_i8_per_token({}, {}, {}); }) == "");

    std::vector<tilewise::float8_e4m3> float8(64);
    CHECK(refusal_of([&] { static_cast<void>(tilewise::quantize_e4m3(all, float8)); }) ==
          "tilewise: quantize: 65 values and 64 numbers given, it must be one number for each value");
}

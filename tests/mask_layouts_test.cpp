// Masks lie in memory in any order: forwards, backwards, with gaps. Wherever an element is, it means the
// same.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tilewise/reference.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::element_type;

constexpr attention_case sizes{
    .batch = 2, .heads = 2, .queries = 21, .keys = 300, .key_dim = 4, .value_dim = 3};
constexpr extents mask_extents = {2, 2, 21, 300};

/// A third of the keys is hidden, and a stretch of bytes of bits is all set or all clear.
bool is_visible(count b, count h, count i, count j) {
    if (i % 3 == 0) { return j / 40 % 2 == 0; }
    return (b + 5 * h + 7 * i + 11 * j) % 3 != 0;
}

struct laid_out_mask {
    std::vector<std::uint8_t> bytes;
    tilewise::const_tensor view;
};

/// Axis a runs backwards if bit a of `backwards` is set; neighbours on the last axis are `step` apart.
laid_out_mask lay_out(element_type type, unsigned backwards, count step) {
    const count row = sizes.keys * step + 3;
    extents strides = {2 * 21 * row, 21 * row, row, step};
    count first = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        if ((backwards >> a & 1U) == 0) { continue; }
        first += (mask_extents[a] - 1) * strides[a];
        strides[a] = -strides[a];
    }
    const bool is_bits = type == element_type::bit;
    if (is_bits) { first = (first + 7) / 8 * 8; }
    laid_out_mask made{std::vector<std::uint8_t>(static_cast<std::size_t>(2 * 2 * 21 * row + 8)), {}};
    made.view = {made.bytes.data() + (is_bits ? first / 8 : first), type, mask_extents, strides};
    for (count n = 0; n < 2 * 2 * 21 * 300; ++n) {
        const extents at = {n / (2 * 21 * 300), n / (21 * 300) % 2, n / 300 % 21, n % 300};
        if (!is_visible(at[0], at[1], at[2], at[3])) { continue; }
        count place = first;
        for (std::size_t a = 0; a < 4; ++a) { place += at[a] * strides[a]; }
        std::uint8_t& byte = made.bytes[static_cast<std::size_t>(is_bits ? place / 8 : place)];
        byte = static_cast<std::uint8_t>(is_bits ? byte | 1U << (place % 8) : 3U);
    }
    return made;
}

}  // namespace

TEST_CASE("masks: bytes and bits mean the same forwards and backwards, side by side and with gaps") {
    const inputs given = make_inputs(sizes);
    const laid_out_mask plain = lay_out(element_type::boolean, 0, 1);
    const all_results want = attend(sizes, given, {.mask = plain.view}, {0, 20});
    for (const element_type type : {element_type::boolean, element_type::bit}) {
        for (const count step : {1, 2, 8, 9}) {
            for (unsigned backwards = 0; backwards < 16; ++backwards) {
                INFO("bits ", type == element_type::bit, ", step ", step, ", backwards ", backwards);
                const laid_out_mask mask = lay_out(type, backwards, step);
                CHECK(first_difference(attend(sizes, given, {.mask = mask.view}, {0, 20}), want) == "");
                const all_results naive(sizes, {0, 20});
                tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(),
                                               naive.out.view(), naive.asked_for({.mask = mask.view}));
                CHECK(first_difference(naive, want) == "");
            }
        }
    }
}

#include "fuzz_memory.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "call_kind.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::element_type;

constexpr std::byte canary{0xc5};

std::uint64_t next_bits(std::uint64_t& state) {
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31U);
}

constexpr std::array special_bits = {
    0x7fc00000U, 0xffc00001U, 0x7f800001U, 0x7f800000U, 0xff800000U, 0x00000000U, 0x80000000U, 0x00000001U,
    0x807fffffU, 0x00800000U, 0x7f7fffffU, 0xff7fffffU, 0x7e967699U, 0xfe967699U, 0x3f800000U, 0xbf800000U};

constexpr std::array<std::uint64_t, 16> special_f64_bits = {
    0x7ff8000000000000U, 0xfff8000000000001U, 0x7ff0000000000001U, 0x7ff0000000000000U,
    0xfff0000000000000U, 0x0000000000000000U, 0x8000000000000000U, 0x0000000000000001U,
    0x800fffffffffffffU, 0x0010000000000000U, 0x7fefffffffffffffU, 0xffefffffffffffffU,
    0x7fe1ccf385ebc8a0U, 0xffe1ccf385ebc8a0U, 0x3ff0000000000000U, 0xbff0000000000000U};

constexpr std::array<std::array<std::size_t, 4>, 6> axis_orders = {
    {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 0, 1, 3}, {0, 1, 3, 2}, {3, 2, 1, 0}, {1, 3, 0, 2}}};

constexpr extents wild_strides = {count{1} << 62, -(count{1} << 62), std::numeric_limits<count>::max(), 1};

struct use {
    bool is_read = false;
    count block = 1;  ///< the last axis is the innermost then, and all gaps are multiples of it
};

/// Strides of a layout that gives every element a place of its own, unless an input repeats some.
extents pick_strides(byte_source& bytes, const extents& sizes, const use& how) {
    extents strides{0, 0, 0, 1};
    const auto order =
        how.block > 1 ? axis_orders[static_cast<std::size_t>(bytes.between(0, 2))] : bytes.pick(axis_orders);
    const bool is_plain = !bytes.one_in(2);
    count total = 1;
    for (std::size_t inward = 4; inward-- > 0;) {
        const std::size_t axis = order[inward];
        const bool is_fixed = how.block > 1 && axis == 3;
        const unsigned choice = is_plain || is_fixed ? 0U : bytes.byte();
        if (sizes[axis] == 1 && choice % 16 == 9) {
            strides[axis] = wild_strides[axis];  // nobody checks it
            continue;
        }
        if (how.is_read && choice % 8 == 7) { continue; }  // stride 0
        if (choice % 8 >= 4) { total += how.block * (1 + choice / 8 % 4); }
        strides[axis] = choice >= 128 ? -total : total;
        total *= std::max<count>(sizes[axis], 1);
    }
    return strides;
}

/// Bytes from the first to behind the last, relative to element 0.
struct reach {
    count first = 0;
    count last = 0;
};

bool is_empty(const extents& sizes) { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }

reach reach_of(element_type type, const extents& sizes, const extents& strides) {
    if (is_empty(sizes)) { return {}; }
    count lowest = 0;
    count highest = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        (strides[a] < 0 ? lowest : highest) += (sizes[a] - 1) * strides[a];
    }
    const tilewise::element_block block = tilewise::block_of(type);
    const count first = lowest / block.elements - (lowest % block.elements < 0 ? 1 : 0);
    return {first * block.bytes, (highest / block.elements + 1) * block.bytes};
}

/// Some bytes in front of the first element, so that addresses have all alignments that are allowed.
count pick_shift(byte_source& bytes, element_type type) {
    const count size = tilewise::block_of(type).bytes;
    const count unit = size == 34 || size == 18 ? 2 : size;
    return bytes.one_in(2) ? unit * bytes.between(0, 15) : 0;
}

template <class Value>
void put(std::vector<std::byte>& to, std::size_t at, Value value) {
    if (at + sizeof value <= to.size()) { std::memcpy(to.data() + at, &value, sizeof value); }
}

void fill(std::vector<std::byte>& memory, std::size_t first, element_type type, number_mixture mixture) {
    const auto size = static_cast<std::size_t>(tilewise::block_of(type).bytes);
    for (std::size_t at = first; at < memory.size(); at += size) {
        switch (type) {
            case element_type::f32:
                put(memory, at, next_number(mixture));
                break;
            case element_type::f16:
                put(memory, at, tilewise::float16(next_number(mixture)));
                break;
            case element_type::bf16:
                put(memory, at, tilewise::bfloat16(next_number(mixture)));
                break;
            case element_type::f64:
                put(memory, at, next_f64(mixture));
                break;
            default:
                for (std::size_t n = at; n < std::min(at + size, memory.size()); ++n) {
                    memory[n] = static_cast<std::byte>(next_bits(mixture.seed));
                }
                if (size >= 18) { put(memory, at, tilewise::float16(next_number(mixture))); }
        }
    }
}

}  // namespace

number_mixture pick_mixture(byte_source& bytes) {
    number_mixture made;
    const std::uint8_t kind = bytes.byte();
    made.seed = bytes.byte();
    made.whole = kind % 8 == 1;
    made.arbitrary = kind % 8 == 2;
    if (kind % 8 == 3) { made.exponent = static_cast<int>(bytes.between(0, 255)) - 128; }
    if (kind % 8 == 4) { made.exponent = static_cast<int>(bytes.between(0, 12)); }
    if (kind / 8 % 4 == 3) { made.special = kind >= 128 ? 1 : 40; }
    return made;
}

float next_number(number_mixture& mixture) {
    const std::uint64_t bits = next_bits(mixture.seed);
    if ((bits & 255U) < mixture.special) { return std::bit_cast<float>(special_bits[bits >> 8U & 15U]); }
    const auto high = static_cast<std::uint32_t>(bits >> 32U);
    if (mixture.arbitrary) { return std::bit_cast<float>(high); }
    const auto whole = static_cast<std::int32_t>(high);
    if (mixture.whole) { return static_cast<float>(whole % 4); }
    return std::ldexp(static_cast<float>(whole), mixture.exponent - 30);
}

double next_f64(number_mixture& mixture) {
    const std::uint64_t bits = next_bits(mixture.seed);
    if ((bits & 255U) < mixture.special) { return std::bit_cast<double>(special_f64_bits[bits >> 8U & 15U]); }
    if (mixture.arbitrary) { return std::bit_cast<double>(bits); }
    const auto whole = static_cast<std::int64_t>(bits);
    if (mixture.whole) { return static_cast<double>(whole % 4); }
    // Exponents that are more than scores of a usual size take reach as far as f64 does.
    const bool is_usual = mixture.exponent >= 0 && mixture.exponent <= 12;
    return std::ldexp(static_cast<double>(whole), mixture.exponent * (is_usual ? 1 : 8) - 62);
}

void result_memory::clear() { std::fill(bytes.begin(), bytes.end(), canary); }

bool result_memory::is_clear() const {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte one) { return one == canary; });
}

bool result_memory::are_gaps_clear() const {
    std::vector<bool> belongs(bytes.size());
    const count size = tilewise::block_of(view.type).bytes;
    const count first = static_cast<const std::byte*>(view.data) - bytes.data();
    const auto& [e, s] = std::pair(view.extents, view.strides);
    for (count n = 0; n < e[0] * e[1] * e[2] * e[3]; ++n) {
        const count at = n / (e[1] * e[2] * e[3]) * s[0] + n / (e[2] * e[3]) % e[1] * s[1] +
                         n / e[3] % e[2] * s[2] + n % e[3] * s[3];
        for (count byte = 0; byte < size; ++byte) {
            belongs[static_cast<std::size_t>(first + at * size + byte)] = true;
        }
    }
    for (std::size_t n = 0; n < bytes.size(); ++n) {
        if (!belongs[n] && bytes[n] != canary) { return false; }
    }
    return true;
}

tilewise::const_tensor fuzz_memory::input(byte_source& bytes, element_type type, const extents& sizes) {
    const count block = type == element_type::bit ? 1 : tilewise::block_of(type).elements;
    if (is_empty(sizes) && bytes.one_in(4)) {
        // Nobody checks these.
        const void* const nowhere = bytes.one_in(2) ? nullptr : blocks_.emplace_back(8).data();
        return {nowhere, type, sizes, wild_strides};
    }
    const extents strides = pick_strides(bytes, sizes, {true, block});
    const reach range = reach_of(type, sizes, strides);
    const count shift = pick_shift(bytes, type);
    std::vector<std::byte>& memory =
        blocks_.emplace_back(static_cast<std::size_t>(shift + range.last - range.first));
    fill(memory, static_cast<std::size_t>(shift), type, pick_mixture(bytes));
    tilewise::const_tensor made(memory.data() + shift - range.first, type, sizes, strides);
    if (has_scales(type)) {
        const tilewise::const_tensor scales = input(bytes, element_type::f32, sizes);
        made.scales = static_cast<const float*>(scales.data);
        made.scale_strides = scales.strides;
    }
    return made;
}

tilewise::tensor fuzz_memory::result(byte_source& bytes, std::string name, element_type type,
                                     const extents& sizes) {
    const extents strides = pick_strides(bytes, sizes, {});
    const reach range = reach_of(type, sizes, strides);
    const count size = tilewise::block_of(type).bytes;
    const count before = size * 8 + pick_shift(bytes, type);
    result_memory& made = results_.emplace_back();
    made.name = std::move(name);
    made.bytes.resize(static_cast<std::size_t>(before + range.last - range.first + size * 8));
    made.view = {made.bytes.data() + before - range.first, type, sizes, strides};
    made.clear();
    return made.view;
}

}  // namespace tilewise_tests

#include "hostile.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "call_kind.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;

constexpr count largest = std::numeric_limits<count>::max();
constexpr std::array<count, 24> extremes = {-1,
                                            -2,
                                            -32,
                                            0x7fff'ffff,
                                            0x8000'0000,
                                            0xffff'ffff,
                                            0x1'0000'0000,
                                            count{1} << 40,
                                            count{1} << 57,
                                            count{1} << 58,
                                            largest / 32,
                                            largest / 4,
                                            largest / 2,
                                            largest / 2 + 1,
                                            largest - 1,
                                            largest,
                                            -largest,
                                            -largest - 1,
                                            -(largest / 2),
                                            -(largest / 32),
                                            count{1} << 61,
                                            -(count{1} << 61),
                                            4096,
                                            -4096};

/// Calls visit(offset in elements) for each element.
template <class Visit>
void for_each_offset(const described& of, Visit visit) {
    std::vector<count> at(of.extents.size(), 0);
    while (true) {
        count offset = 0;
        for (std::size_t a = 0; a < at.size(); ++a) { offset += at[a] * of.strides[a]; }
        visit(offset);
        std::size_t axis = at.size();
        while (axis > 0 && ++at[axis - 1] == of.extents[axis - 1]) { at[--axis] = 0; }
        if (axis == 0) { return; }
    }
}

struct reach {
    long double lowest = 0;  ///< in elements
    long double highest = 0;
};

reach reach_of(const described& of) {
    reach range;
    for (std::size_t a = 0; a < of.extents.size(); ++a) {
        const auto last = static_cast<long double>(of.extents[a]) - 1;
        const long double distance = last * static_cast<long double>(of.strides[a]);
        (distance < 0 ? range.lowest : range.highest) += distance;
    }
    return range;
}

}  // namespace

count hostile_number(byte_source& bytes) {
    const std::uint8_t kind = bytes.byte();
    if (kind % 4 == 3) { return bytes.pick(extremes); }
    if (kind == 250) { return static_cast<count>(bytes.word()); }
    return kind % 4 == 2 ? bytes.between(0, 255) : bytes.between(0, 8);
}

arena::arena() : memory_(size) {}

void arena::fill(std::uint8_t seed) {
    used_ = 0;
    std::uint32_t state = seed + 1U;
    for (std::size_t at = 0; at + 4 <= size; at += 4) {
        state = state * 1664525U + 1013904223U;
        const float value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30F;
        std::memcpy(memory_.data() + at, &value, sizeof value);
    }
}

std::byte* arena::hostile_address(byte_source& bytes) {
    const std::uint8_t kind = bytes.byte();
    const count place = bytes.between(0, static_cast<count>(size) - 1);
    if (kind % 16 == 15) { return nullptr; }
    if (kind % 16 == 14) { return reinterpret_cast<std::byte*>(~std::uintptr_t{3}); }
    if (kind % 16 == 13) { return memory_.data() + place; }
    return memory_.data() + place / 4 * 4;
}

std::byte* arena::take(std::size_t bytes) {
    std::byte* const part = memory_.data() + used_;
    used_ += (bytes + 15) / 8 * 8;
    if (used_ > size) { report("the arena is too small"); }
    return part;
}

bool described::has_elements() const { return std::find(extents.begin(), extents.end(), 0) == extents.end(); }

bool described::is_small() const {
    long double total = 1;
    for (const count extent : extents) { total *= std::max(static_cast<long double>(extent), 1.0L); }
    return total <= 4096;
}

bool described::is_within(arena& memory) const {
    if (!is_small()) { return false; }
    if (!has_elements()) { return true; }
    const reach range = reach_of(*this);
    const auto elements = static_cast<long double>(block_elements);
    const auto bytes = static_cast<long double>(block_bytes);
    const auto from = static_cast<long double>(reinterpret_cast<std::uintptr_t>(data));
    const auto begin = static_cast<long double>(reinterpret_cast<std::uintptr_t>(memory.data()));
    return from + std::floor(range.lowest / elements) * bytes >= begin &&
           from + (std::floor(range.highest / elements) + 1) * bytes <= begin + arena::size;
}

bool described::is_beyond_63_bits() const {
    const reach range = reach_of(*this);
    const long double most = std::max(range.highest, -range.lowest) /
                             static_cast<long double>(block_elements) * static_cast<long double>(block_bytes);
    return has_elements() && most > 0x1.1p63L;
}

bool described::count_bytes(arena& memory, std::vector<bool>& seen) const {
    if (!has_elements()) { return true; }
    bool is_new = true;
    const count first = static_cast<const std::byte*>(data) - memory.data();
    for_each_offset(*this, [&](count offset) {
        for (count byte = 0; byte < block_bytes; ++byte) {
            auto place = seen[static_cast<std::size_t>(first + offset * block_bytes + byte)];
            is_new = is_new && !place;
            place = true;
        }
    });
    return is_new;
}

described describe(const tilewise::const_tensor& view) {
    const tilewise::element_block block = tilewise::block_of(view.type);
    return {view.data,
            {view.extents.begin(), view.extents.end()},
            {view.strides.begin(), view.strides.end()},
            block.elements,
            block.bytes};
}

described describe_scales(const tilewise::const_tensor& view) {
    return {view.scales,
            {view.extents.begin(), view.extents.end()},
            {view.scale_strides.begin(), view.scale_strides.end()}};
}

template <class View>
void place(View& view, arena& memory, tilewise::element_type type, const std::array<count, 4>& extents) {
    const tilewise::element_block block = tilewise::block_of(type);
    const auto [b, h, t, d] = extents;
    const count blocks = (b * h * t * d + block.elements - 1) / block.elements;
    view = {
        memory.take(static_cast<std::size_t>(blocks * block.bytes)), type, extents, {h * t * d, t * d, d, 1}};
    if (has_scales(type)) {
        view.scales = reinterpret_cast<const float*>(memory.take(static_cast<std::size_t>(b * h * t) * 4));
        view.scale_strides = {h * t, t, 1, 0};
    }
}

/// Changes one thing about a view.
template <class View>
void harm(View& view, byte_source& bytes, arena& memory) {
    const std::uint8_t what = bytes.byte();
    const std::size_t axis = what / 8 % 4;
    switch (what % 8) {
        case 0:
        case 1:
            view.extents[axis] = hostile_number(bytes);
            break;
        case 2:
        case 3:
        case 4:
            view.strides[axis] = hostile_number(bytes);
            break;
        case 5:
            view.data = memory.hostile_address(bytes);
            break;
        case 6:
            view.type = static_cast<tilewise::element_type>(bytes.between(0, 12));
            break;
        default:
            view.scale_strides[axis] = hostile_number(bytes);
            if (what >= 192) { view.scales = reinterpret_cast<const float*>(memory.hostile_address(bytes)); }
    }
}

template void place(tilewise::tensor&, arena&, tilewise::element_type, const std::array<count, 4>&);
template void place(tilewise::const_tensor&, arena&, tilewise::element_type, const std::array<count, 4>&);
template void harm(tilewise::tensor&, byte_source&, arena&);
template void harm(tilewise::const_tensor&, byte_source&, arena&);

bool can_be_tried(std::span<const described> all, arena& memory) {
    bool is_there = true;
    for (const described& one : all) {
        if (one.extents.size() != one.strides.size() || one.is_beyond_63_bits()) { return true; }
        if (std::any_of(one.extents.begin(), one.extents.end(), [](count extent) { return extent < 0; })) {
            return true;
        }
        is_there = is_there && one.is_within(memory);
    }
    return is_there;
}

std::string flaw_of(arena& memory, std::span<const described> read, std::span<const described> written) {
    std::vector<bool> seen(arena::size);
    for (const std::span<const described> all : {read, written}) {
        for (const described& one : all) {
            if (one.has_elements() && one.data == nullptr) { return "null data was accepted"; }
            if (one.is_beyond_63_bits()) { return "offsets beyond 63 bits were accepted"; }
        }
    }
    for (const described& one : written) {
        if (one.is_within(memory) && !one.count_bytes(memory, seen)) { return "results overlap"; }
    }
    for (const described& one : read) {
        if (!one.is_within(memory) || !one.has_elements()) { continue; }
        for_each_offset(one, [&](count offset) {
            const count block = offset / one.block_elements - (offset % one.block_elements < 0 ? 1 : 0);
            const count first =
                static_cast<const std::byte*>(one.data) - memory.data() + block * one.block_bytes;
            for (count byte = 0; byte < one.block_bytes; ++byte) {
                if (seen[static_cast<std::size_t>(first + byte)]) { report("a result overlaps an input"); }
            }
        });
    }
    return {};
}

}  // namespace tilewise_tests

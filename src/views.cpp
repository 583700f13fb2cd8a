#include "views.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>

namespace tilewise {

namespace {

std::string type_name(element_type type) {
    switch (type) {
        case element_type::f32:
            return "f32";
        case element_type::f16:
            return "f16";
        case element_type::bf16:
            return "bf16";
        case element_type::i32:
            return "i32";
        case element_type::boolean:
            return "boolean";
        case element_type::bit:
            return "bit";
    }
    return "number " + std::to_string(static_cast<int>(type));
}

void require_type(std::string_view name, element_type given, std::span<const element_type> allowed) {
    if (std::find(allowed.begin(), allowed.end(), given) != allowed.end()) { return; }
    std::string names = type_name(allowed.front());
    for (std::size_t i = 1; i < allowed.size(); ++i) {
        names += (i + 1 < allowed.size() ? ", " : " or ") + type_name(allowed[i]);
    }
    refuse(name, ": element type ", type_name(given), " given, it must be ", names);
}

bool is_empty(const const_tensor& view) {
    return view.batch() == 0 || view.heads() == 0 || view.tokens() == 0 || view.head_dim() == 0;
}

}  // namespace

byte_range check_view(std::string_view name, const const_tensor& view, element_type allowed) {
    return check_view(name, view, std::span(&allowed, 1));
}

byte_range check_view(std::string_view name, const const_tensor& view,
                      std::span<const element_type> allowed) {
    require_type(name, view.type, allowed);
    for (std::size_t a = 0; a < 4; ++a) {
        if (view.extents[a] < 0) {
            refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be at least 0");
        }
    }
    if (is_empty(view)) { return {}; }
    if (view.data == nullptr) { refuse(name, ": null data given, the view has elements"); }
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    const std::int64_t bits = element_bits(view.type);
    const std::uintptr_t alignment = bits < 8 ? 1 : static_cast<std::uintptr_t>(bits / 8);
    if (address % alignment != 0) {
        refuse(name, ": data at address ", address, " given, it must be a multiple of ", alignment);
    }
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        std::int64_t reach = 0;
        std::int64_t& bound = view.strides[a] < 0 ? lowest : highest;
        if (__builtin_mul_overflow(view.extents[a] - 1, view.strides[a], &reach) ||
            __builtin_add_overflow(bound, reach, &bound)) {
            refuse(name, ": ", axis_names[a], " ", view.extents[a], " with stride ", view.strides[a],
                   " given, offsets must fit in 63 bits");
        }
    }
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 32;
    if (lowest < -limit || highest > limit) {
        refuse(name, ": elements from offset ", lowest, " to ", highest,
               " given, byte offsets must fit in 63 bits");
    }
    // Bits are rounded outwards to whole bytes.
    const std::int64_t first = lowest * bits;
    const std::int64_t last = (highest + 1) * bits;
    const std::int64_t first_byte = first / 8 - (first % 8 < 0 ? 1 : 0);
    return {address + static_cast<std::uintptr_t>(first_byte),
            address + static_cast<std::uintptr_t>((last + 7) / 8)};
}

void require_extent(std::string_view name, const const_tensor& view, axis along, std::int64_t wanted,
                    std::string_view reason) {
    const auto a = static_cast<std::size_t>(along);
    if (view.extents[a] != wanted) {
        refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", wanted, " as in ",
               reason);
    }
}

void require_distinct_elements(std::string_view name, const const_tensor& view) {
    if (is_empty(view)) { return; }
    std::int64_t covered = 0;
    bool used[4] = {};
    for (int round = 0; round < 4; ++round) {
        std::size_t smallest = 4;
        for (std::size_t a = 0; a < 4; ++a) {
            if (!used[a] && (smallest == 4 || std::abs(view.strides[a]) < std::abs(view.strides[smallest]))) {
                smallest = a;
            }
        }
        used[smallest] = true;
        if (view.extents[smallest] == 1) { continue; }
        const std::int64_t stride = std::abs(view.strides[smallest]);
        if (stride <= covered) {
            refuse(name, ": ", axis_names[smallest], " has stride ", view.strides[smallest],
                   ", which makes elements overlap; it must be at least ", covered + 1);
        }
        covered += (view.extents[smallest] - 1) * stride;
    }
}

void require_apart(std::string_view name, byte_range written, std::string_view other_name, byte_range other) {
    if (written.first < other.last && other.first < written.last) {
        refuse(name, ": its memory overlaps that of ", other_name, ", it must be apart from it");
    }
}

}  // namespace tilewise

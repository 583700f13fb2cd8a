#include "views.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>

namespace tilewise {

namespace {

using type_text = short_text<20>;

type_text text_of(const auto&... parts) {
    type_text text;
    text.assign({text_part(parts)...});
    return text;
}

type_text type_name(element_type type) {
    switch (type) {
        case element_type::f32:
            return text_of("f32");
        case element_type::f16:
            return text_of("f16");
        case element_type::bf16:
            return text_of("bf16");
        case element_type::q8_0:
            return text_of("q8_0");
        case element_type::q4_0:
            return text_of("q4_0");
        case element_type::i8:
            return text_of("i8");
        case element_type::e4m3:
            return text_of("e4m3");
        case element_type::e5m2:
            return text_of("e5m2");
        case element_type::i32:
            return text_of("i32");
        case element_type::boolean:
            return text_of("boolean");
        case element_type::bit:
            return text_of("bit");
        case element_type::f64:
            return text_of("f64");
    }
    return text_of("number ", static_cast<int>(type));
}

bool require_type(std::string_view name, element_type given, std::span<const element_type> allowed) {
    if (std::find(allowed.begin(), allowed.end(), given) != allowed.end()) { return true; }
    short_text<200> names;
    for (std::size_t i = 0; i < allowed.size(); ++i) {
        if (i > 0) { names.add(i + 1 < allowed.size() ? ", " : " or "); }
        names.add(type_name(allowed[i]));
    }
    return refuse(name, ": element type ", type_name(given), " given, it must be ", names);
}

/// Rows of quantised blocks are whole, and their blocks side by side.
bool require_whole_blocks(std::string_view name, const const_tensor& view) {
    const std::int64_t size = block_of(view.type).elements;
    if (view.type == element_type::bit || size == 1) { return true; }
    if (view.head_dim() % size != 0) {
        return refuse(name, ": head_dim is ", view.head_dim(), ", it must be a multiple of ", size,
                      ", a block of ", type_name(view.type));
    }
    for (std::size_t a = 0; a < 3; ++a) {
        if (view.extents[a] > 1 && view.strides[a] % size != 0) {
            return refuse(name, ": ", axis_names[a], " has stride ", view.strides[a],
                          ", it must be a multiple of ", size, ", a block of ", type_name(view.type));
        }
    }
    if (view.head_dim() > 0 && view.strides[3] != 1) {
        return refuse(name, ": head_dim has stride ", view.strides[3], ", it must be 1 for ",
                      type_name(view.type));
    }
    return true;
}

std::uintptr_t alignment_of(element_type type) {
    if (type == element_type::bit) { return 1; }
    const element_block block = block_of(type);
    return block.elements == 1 ? static_cast<std::uintptr_t>(block.bytes) : alignof(q8_0_block);
}

bool require_apart(std::string_view name, byte_range written, std::string_view other_name, byte_range other) {
    if (written.first < other.last && other.first < written.last) {
        return refuse(name, ": its memory overlaps that of ", other_name, ", it must be apart from it");
    }
    return true;
}

}  // namespace

bool has_scales(element_type type) {
    return type == element_type::i8 || type == element_type::e4m3 || type == element_type::e5m2;
}

bool is_empty(const const_tensor& view) {
    return view.batch() == 0 || view.heads() == 0 || view.tokens() == 0 || view.head_dim() == 0;
}

namespace {

/// Whether a slice of `data` begins where 63 bits can count its bytes, and where there is an address.
bool require_address(const void* data, const element_block& block, std::int64_t first, std::int64_t stride) {
    std::int64_t offset = 0;
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 32;
    if (__builtin_mul_overflow(first, stride, &offset) || offset < -limit || offset > limit) {
        return refuse("slice: first ", first, " given with a stride of ", stride,
                      ", their product in bytes must fit in 63 bits");
    }
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const auto distance = static_cast<std::uintptr_t>(offset / block.elements * block.bytes);
    const std::uintptr_t begin = address + distance;
    const bool is_lost = begin == 0 || (offset < 0 ? begin > address : begin < address);
    if (data != nullptr && is_lost) {
        return refuse("slice: first ", first, " given with a stride of ", stride, " and data at address ",
                      address, ", it must have an address");
    }
    return true;
}

}  // namespace

bool check_slice(const const_tensor& view, axis along, std::int64_t first, std::int64_t count) {
    const auto a = static_cast<std::size_t>(along);
    if (first < 0 || count < 0 || first > view.extents[a] || count > view.extents[a] - first) {
        return refuse("slice: first ", first, " and count ", count, " given, the axis has ", view.extents[a],
                      " elements");
    }
    if (count == 0 || is_empty(view)) { return true; }
    const element_block block = block_of(view.type);
    if (!require_address(view.data, block, first, view.strides[a]) ||
        (view.scales != nullptr &&
         !require_address(view.scales, block_of(element_type::f32), first, view.scale_strides[a]))) {
        return false;
    }
    if (first * view.strides[a] % block.elements != 0) {
        return refuse("slice: element ", first, " given, a slice must begin at a whole block of ",
                      block.elements, " elements");
    }
    return true;
}

void detail::refuse_wrong_slice(const const_tensor& view, axis along, std::int64_t first,
                                std::int64_t count) {
    raise_unless(status_of(check_slice(view, along, first, count)));
}
void detail::refuse_extent(std::int64_t extent) {
    raise(status_of(refuse("extent ", extent, " given, it must be at least 0")));
}
void detail::refuse_span(std::size_t elements) {
    raise(status_of(refuse("a span of ", elements, " elements given, the extents need more")));
}

bool check_view(std::string_view name, const const_tensor& view, element_type allowed, byte_range& bytes) {
    return check_view(name, view, std::span(&allowed, 1), bytes);
}

bool check_view(std::string_view name, const const_tensor& view, std::span<const element_type> allowed,
                byte_range& bytes) {
    bytes = {};
    if (!require_type(name, view.type, allowed)) { return false; }
    for (std::size_t a = 0; a < 4; ++a) {
        if (view.extents[a] < 0) {
            return refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be at least 0");
        }
    }
    if (!require_whole_blocks(name, view)) { return false; }
    if (view.scales != nullptr && !has_scales(view.type)) {
        return refuse(name, ": scales given, there are none with ", type_name(view.type));
    }
    if (is_empty(view)) { return true; }
    if (view.data == nullptr) { return refuse(name, ": null data given, the view has elements"); }
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    const std::uintptr_t alignment = alignment_of(view.type);
    if (address % alignment != 0) {
        return refuse(name, ": data at address ", address, " given, it must be a multiple of ", alignment);
    }
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        std::int64_t reach = 0;
        std::int64_t& bound = view.strides[a] < 0 ? lowest : highest;
        if (__builtin_mul_overflow(view.extents[a] - 1, view.strides[a], &reach) ||
            __builtin_add_overflow(bound, reach, &bound)) {
            return refuse(name, ": ", axis_names[a], " ", view.extents[a], " with stride ", view.strides[a],
                          " given, offsets must fit in 63 bits");
        }
    }
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 32;
    if (lowest < -limit || highest > limit) {
        return refuse(name, ": elements from offset ", lowest, " to ", highest,
                      " given, byte offsets must fit in 63 bits");
    }
    // Rounded outwards to whole blocks.
    const element_block block = block_of(view.type);
    const std::int64_t first = lowest / block.elements - (lowest % block.elements < 0 ? 1 : 0);
    const std::int64_t last = highest / block.elements + 1;
    const auto distance = [&](std::int64_t blocks) {
        return static_cast<std::uintptr_t>(blocks * block.bytes);
    };
    if (distance(-first) > address || distance(last) > std::numeric_limits<std::uintptr_t>::max() - address) {
        return refuse(name, ": data at address ", address, " and elements from offset ", lowest, " to ",
                      highest, " given, all must have addresses");
    }
    bytes = {address - distance(-first), address + distance(last)};
    return true;
}

bool check_scales(std::string_view name, std::string_view scales_name, const const_tensor& view,
                  byte_range& bytes) {
    bytes = {};
    if (!has_scales(view.type) || is_empty(view)) { return true; }
    if (view.scales == nullptr) {
        return refuse(name, ": no scales given, ", type_name(view.type), " needs them");
    }
    return check_view(scales_name,
                      const_tensor(view.scales, element_type::f32, view.extents, view.scale_strides),
                      element_type::f32, bytes);
}

bool require_extent(std::string_view name, const const_tensor& view, axis along, std::int64_t wanted,
                    std::string_view reason) {
    const auto a = static_cast<std::size_t>(along);
    if (view.extents[a] != wanted) {
        return refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", wanted, " as in ",
                      reason);
    }
    return true;
}

bool require_distinct_elements(std::string_view name, const const_tensor& view) {
    if (is_empty(view)) { return true; }
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
            return refuse(name, ": ", axis_names[smallest], " has stride ", view.strides[smallest],
                          ", which makes elements overlap; it must be at least ", covered + 1);
        }
        covered += (view.extents[smallest] - 1) * stride;
    }
    return true;
}

bool memory_map::add(const entry& added) {
    if (count_ == entries_.size()) { return fail(status_code::internal_error, "too many arguments"); }
    entries_[count_++] = added;
    return true;
}

bool memory_map::read(std::string_view name, byte_range bytes) {
    for (std::size_t n = 0; n < count_; ++n) {
        if (entries_[n].written && !require_apart(entries_[n].name, entries_[n].bytes, name, bytes)) {
            return false;
        }
    }
    return add({name, bytes, false});
}

bool memory_map::write(std::string_view name, byte_range bytes) {
    for (std::size_t n = 0; n < count_; ++n) {
        if (!require_apart(name, bytes, entries_[n].name, entries_[n].bytes)) { return false; }
    }
    return add({name, bytes, true});
}

}  // namespace tilewise

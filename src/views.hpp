// Checks of one tensor view, and of two views that must not overlap. Nothing here reads or writes an element.

#ifndef TILEWISE_SRC_VIEWS_HPP
#define TILEWISE_SRC_VIEWS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <tilewise/tensor.hpp>

namespace tilewise {

/// Throws std::invalid_argument with these parts as its message.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    std::ostringstream message;
    message << "tilewise: ";
    (message << ... << parts);
    throw std::invalid_argument(message.str());
}

inline constexpr std::string_view axis_names[4] = {"batch", "heads", "tokens", "head_dim"};

/// The bytes [first, last) that a view may touch, as addresses.
struct byte_range {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
};

/// What the elements of q, k, v, out and a bias may be.
inline constexpr element_type float_types[] = {element_type::f32, element_type::f16, element_type::bf16};

/// What the elements of k and v may be.
inline constexpr element_type key_value_types[] = {element_type::f32,  element_type::f16,  element_type::bf16,
                                                   element_type::q8_0, element_type::q4_0, element_type::i8,
                                                   element_type::e4m3, element_type::e5m2};

/// Checks one view by itself; its byte range is empty if it has no element.
byte_range check_view(std::string_view name, const const_tensor& view, std::span<const element_type> allowed);
byte_range check_view(std::string_view name, const const_tensor& view, element_type allowed);

/// The memory of a view's scales, which are checked as a view is; empty for types without.
byte_range check_scales(std::string_view name, const const_tensor& view);

bool is_empty(const const_tensor& view);

/// The strides of a view without elements may be anything, and nobody checks them: they are 0 here, for
/// offsets to be computed with.
template <class Void>
basic_tensor<Void> with_sound_strides(basic_tensor<Void> view) {
    if (is_empty(view)) {
        view.strides = {};
        view.scale_strides = {};
    }
    return view;
}

void require_extent(std::string_view name, const const_tensor& view, axis along, std::int64_t wanted,
                    std::string_view reason);

/// A written view must give every element a place of its own. Sorted by stride, each axis must step over all
/// that the smaller ones cover; this refuses some odd interleavings that would not overlap.
void require_distinct_elements(std::string_view name, const const_tensor& view);

/// The memory that the arguments of a call occupy: what is written must be apart from all else.
class memory_map {
public:
    void read(std::string_view name, byte_range bytes);
    void write(std::string_view name, byte_range bytes);

private:
    struct entry {
        std::string_view name;
        byte_range bytes;
        bool written;
    };
    std::array<entry, 20> entries_{};
    std::size_t count_ = 0;
};

}  // namespace tilewise

#endif

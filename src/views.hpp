// Checks of one tensor view, and of two views that must not overlap. Nothing here reads or writes an element.

#ifndef TILEWISE_SRC_VIEWS_HPP
#define TILEWISE_SRC_VIEWS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tilewise/tensor.hpp>

#include "errors.hpp"

namespace tilewise {

inline constexpr std::string_view axis_names[4] = {"batch", "heads", "tokens", "head_dim"};

/// The bytes [first, last) that a view may touch, as addresses.
struct byte_range {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
};

/// What the elements of q, k, v, out and a bias may be, where f32 is computed.
inline constexpr element_type float_types[] = {element_type::f32, element_type::f16, element_type::bf16};

/// And with f64, where all is computed in it.
inline constexpr element_type query_types[] = {element_type::f32, element_type::f16, element_type::bf16,
                                               element_type::f64};
inline constexpr element_type f64_bias_types[] = {element_type::f64, element_type::f32};

/// What the elements of k and v may be.
inline constexpr element_type key_value_types[] = {element_type::f32,  element_type::f16,  element_type::bf16,
                                                   element_type::q8_0, element_type::q4_0, element_type::i8,
                                                   element_type::e4m3, element_type::e5m2};

/// Whether elements of a type are multiplied by scales that lie in memory of their own.
[[nodiscard]] bool has_scales(element_type type);

/// Checks one view by itself, and finds its byte range, which is empty if it has no element.
[[nodiscard]] bool check_view(std::string_view name, const const_tensor& view,
                              std::span<const element_type> allowed, byte_range& bytes);
[[nodiscard]] bool check_view(std::string_view name, const const_tensor& view, element_type allowed,
                              byte_range& bytes);

/// The memory of a view's scales, which are checked as a view is; empty for types without.
[[nodiscard]] bool check_scales(std::string_view name, std::string_view scales_name, const const_tensor& view,
                                byte_range& bytes);

bool is_empty(const const_tensor& view);

/// The strides of a view without elements, and of an axis with one index, may be anything, and nobody checks
/// them: here they are some that offsets can be computed with. Nor need scales be there without elements.
template <class Void>
basic_tensor<Void> with_sound_strides(basic_tensor<Void> view) {
    const bool empty = is_empty(view);
    if (empty) { view.scales = nullptr; }
    for (std::size_t a = 0; a < 4; ++a) {
        if (!empty && view.extents[a] > 1) { continue; }
        view.strides[a] = a == 3 ? 1 : 0;
        view.scale_strides[a] = 0;
    }
    return view;
}

[[nodiscard]] bool require_extent(std::string_view name, const const_tensor& view, axis along,
                                  std::int64_t wanted, std::string_view reason);

/// A written view must give every element a place of its own. Sorted by stride, each axis must step over all
/// that the smaller ones cover; this refuses some odd interleavings that would not overlap.
[[nodiscard]] bool require_distinct_elements(std::string_view name, const const_tensor& view);

/// Whether basic_tensor::slice can be had.
[[nodiscard]] bool check_slice(const const_tensor& view, axis along, std::int64_t first, std::int64_t count);

/// The memory that the arguments of a call occupy: what is written must be apart from all else. There is room
/// for all that a call can have.
class memory_map {
public:
    [[nodiscard]] bool read(std::string_view name, byte_range bytes);
    [[nodiscard]] bool write(std::string_view name, byte_range bytes);

private:
    struct entry {
        std::string_view name;
        byte_range bytes;
        bool written;
    };
    [[nodiscard]] bool add(const entry& added);
    std::array<entry, 20> entries_{};
    std::size_t count_ = 0;
};

}  // namespace tilewise

#endif

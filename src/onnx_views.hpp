// From the arrays of a runtime to checked views [batch, heads, tokens, head_dim].

#ifndef TILEWISE_SRC_ONNX_VIEWS_HPP
#define TILEWISE_SRC_ONNX_VIEWS_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tilewise/onnx.hpp>
#include <tilewise/tensor.hpp>

#include "views.hpp"

namespace tilewise::onnx {

short_text<20> name_of(data_type type);

/// An attribute that says how many heads the last axis of a 3-D array has.
struct head_count {
    std::string_view name;
    std::optional<std::int64_t> value;
};

[[nodiscard]] bool require_type(std::string_view name, data_type given, data_type wanted);

template <class Void>
[[nodiscard]] bool require_rank(std::string_view name, const basic_array<Void>& given, std::size_t wanted,
                                std::string_view reason) {
    if (given.shape.size() != wanted) {
        return refuse(name, ": rank ", given.shape.size(), " given, it must be ", wanted,
                      reason.empty() ? "" : ", ", reason);
    }
    return true;
}

/// A float32 array of rank 4, or of rank 3 with `heads` heads in its last axis.
template <class Void>
[[nodiscard]] bool make_heads_view(std::string_view name, const basic_array<Void>& from,
                                   const head_count& heads, basic_tensor<Void>& view);

/// An array of rank 1 to 4, with its axes at the end of the view's and extents of 1 before them.
template <class Void>
[[nodiscard]] bool make_aligned_view(std::string_view name, const basic_array<Void>& from, element_type type,
                                     basic_tensor<Void>& view);

/// Checks the shape, strides and memory of a vector without gaps, whose elements have `size` bytes; `reason`
/// says why it has `count` of them.
[[nodiscard]] bool require_vector(std::string_view name, const const_array& from, std::int64_t count,
                                  std::string_view reason, std::size_t size);

template <class Element>
[[nodiscard]] bool find_elements(std::string_view name, const const_array& from, data_type type,
                                 std::int64_t count, std::string_view reason,
                                 std::span<const Element>& elements) {
    if (!require_type(name, from.type, type) || !require_vector(name, from, count, reason, sizeof(Element))) {
        return false;
    }
    elements = {static_cast<const Element*>(from.data), static_cast<std::size_t>(count)};
    return true;
}

template <class Element>
byte_range bytes_of(std::span<const Element> elements) {
    const auto first = reinterpret_cast<std::uintptr_t>(elements.data());
    return {first, first + elements.size_bytes()};
}

}  // namespace tilewise::onnx

#endif

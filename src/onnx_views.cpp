#include "onnx_views.hpp"

#include <algorithm>
#include <array>

namespace tilewise::onnx {

namespace {

std::string shown(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    }
    return text + "]";
}

/// [1, batch, tokens, heads * head_dim] to [batch, heads, tokens, head_dim].
template <class Void>
basic_tensor<Void> split_heads(std::string_view name, const basic_tensor<Void>& rows,
                               const head_count& heads) {
    if (!heads.value.has_value()) { refuse(heads.name, ": not given, a ", name, " of rank 3 needs it"); }
    const auto [one, batch, tokens, hidden] = rows.extents;
    if (hidden % *heads.value != 0) {
        refuse(name, ": last extent is ", hidden, ", it must be a multiple of ", heads.name, ", ",
               *heads.value);
    }
    const std::int64_t head_dim = hidden / *heads.value;
    std::int64_t head_stride = 0;  // overflows only if there are no elements
    static_cast<void>(__builtin_mul_overflow(head_dim, rows.strides[3], &head_stride));
    return {rows.data,
            rows.type,
            {batch, *heads.value, tokens, head_dim},
            {rows.strides[1], head_stride, rows.strides[2], rows.strides[3]}};
}

}  // namespace

std::string name_of(data_type type) {
    switch (type) {
        case data_type::float32:
            return "float32";
        case data_type::uint8:
            return "uint8";
        case data_type::int8:
            return "int8";
        case data_type::uint16:
            return "uint16";
        case data_type::int16:
            return "int16";
        case data_type::int32:
            return "int32";
        case data_type::int64:
            return "int64";
        case data_type::boolean:
            return "boolean";
        case data_type::float16:
            return "float16";
        case data_type::float64:
            return "float64";
        case data_type::uint32:
            return "uint32";
        case data_type::uint64:
            return "uint64";
        case data_type::bfloat16:
            return "bfloat16";
    }
    return "number " + std::to_string(static_cast<std::int32_t>(type));
}

void require_type(std::string_view name, data_type given, data_type wanted) {
    if (given != wanted) {
        refuse(name, ": element type ", name_of(given), " given, it must be ", name_of(wanted));
    }
}

template <class Void>
basic_tensor<Void> aligned_view(std::string_view name, const basic_array<Void>& from, element_type type) {
    const std::size_t rank = from.shape.size();
    if (rank < 1 || rank > 4) { refuse(name, ": rank ", rank, " given, it must be from 1 to 4"); }
    if (!from.strides.empty() && from.strides.size() != rank) {
        refuse(name, ": ", from.strides.size(), " strides given, it must be none, or one for each of ", rank,
               " axes");
    }
    if (std::any_of(from.shape.begin(), from.shape.end(), [](std::int64_t extent) { return extent < 0; })) {
        refuse(name, ": shape ", shown(from.shape), " given, extents must be at least 0");
    }
    basic_tensor<Void> view{from.data, type, {1, 1, 1, 1}, {}};
    std::copy(from.shape.begin(), from.shape.end(), view.extents.end() - static_cast<std::ptrdiff_t>(rank));
    if (from.strides.empty()) {
        std::int64_t stride = 1;
        for (std::size_t a = 4; a-- > 4 - rank;) {
            view.strides[a] = stride;
            stride = detail::stride_over(stride, view.extents[a]);
        }
    } else {
        std::copy(from.strides.begin(), from.strides.end(),
                  view.strides.end() - static_cast<std::ptrdiff_t>(rank));
    }
    check_view(name, view, type);
    return with_sound_strides(view);
}

template <class Void>
basic_tensor<Void> heads_view(std::string_view name, const basic_array<Void>& from, const head_count& heads) {
    require_type(name, from.type, data_type::float32);
    if (from.shape.size() != 3 && from.shape.size() != 4) {
        refuse(name, ": rank ", from.shape.size(), " given, it must be 3 or 4");
    }
    const basic_tensor<Void> view = aligned_view(name, from, element_type::f32);
    if (from.shape.size() == 3) { return split_heads(name, view, heads); }
    if (heads.value.has_value() && *heads.value != view.heads()) {
        refuse(heads.name, ": ", *heads.value, " given, ", name, " has ", view.heads(), " heads");
    }
    return view;
}

template tensor aligned_view(std::string_view, const array&, element_type);
template const_tensor aligned_view(std::string_view, const const_array&, element_type);
template tensor heads_view(std::string_view, const array&, const head_count&);
template const_tensor heads_view(std::string_view, const const_array&, const head_count&);

void require_vector(std::string_view name, const const_array& from, std::int64_t count,
                    std::string_view reason, std::size_t alignment) {
    if (from.shape.size() != 1 || from.shape[0] != count) {
        refuse(name, ": shape ", shown(from.shape), " given, it must be [", count, "], ", reason);
    }
    if (!from.strides.empty() && (from.strides.size() != 1 || from.strides[0] != 1)) {
        refuse(name, ": strides ", shown(from.strides), " given, it must be without gaps");
    }
    if (count > 0 && from.data == nullptr) { refuse(name, ": null data given, it has elements"); }
    const auto address = reinterpret_cast<std::uintptr_t>(from.data);
    if (address % alignment != 0) {
        refuse(name, ": data at address ", address, " given, it must be a multiple of ", alignment);
    }
}

}  // namespace tilewise::onnx

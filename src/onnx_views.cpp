#include "onnx_views.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace tilewise::onnx {

namespace {

short_text<200> shown(std::span<const std::int64_t> shape) {
    short_text<200> text;
    text.add("[");
    for (std::size_t a = 0; a < shape.size(); ++a) {
        if (a > 0) { text.add(", "); }
        text.add(shape[a]);
    }
    text.add("]");
    return text;
}

/// [1, batch, tokens, heads * head_dim] to [batch, heads, tokens, head_dim].
template <class Void>
bool split_heads(std::string_view name, const head_count& heads, basic_tensor<Void>& view) {
    if (!heads.value.has_value()) {
        return refuse(heads.name, ": not given, a ", name, " of rank 3 needs it");
    }
    const auto [one, batch, tokens, hidden] = view.extents;
    if (hidden % *heads.value != 0) {
        return refuse(name, ": last extent is ", hidden, ", it must be a multiple of ", heads.name, ", ",
                      *heads.value);
    }
    const std::int64_t head_dim = hidden / *heads.value;
    std::int64_t head_stride = 0;  // overflows only if there are no elements
    static_cast<void>(__builtin_mul_overflow(head_dim, view.strides[3], &head_stride));
    view.extents = {batch, *heads.value, tokens, head_dim};
    view.strides = {view.strides[1], head_stride, view.strides[2], view.strides[3]};
    return true;
}

std::string_view literal_name_of(data_type type) {
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
    return {};
}

}  // namespace

short_text<20> name_of(data_type type) {
    const std::string_view name = literal_name_of(type);
    short_text<20> text;
    if (name.empty()) {
        text.assign({"number ", static_cast<std::int32_t>(type)});
    } else {
        text.assign({name});
    }
    return text;
}

bool require_type(std::string_view name, data_type given, data_type wanted) {
    if (given != wanted) {
        return refuse(name, ": element type ", name_of(given), " given, it must be ", name_of(wanted));
    }
    return true;
}

template <class Void>
bool make_aligned_view(std::string_view name, const basic_array<Void>& from, element_type type,
                       basic_tensor<Void>& view) {
    const std::size_t rank = from.shape.size();
    if (rank < 1 || rank > 4) { return refuse(name, ": rank ", rank, " given, it must be from 1 to 4"); }
    if (!from.strides.empty() && from.strides.size() != rank) {
        return refuse(name, ": ", from.strides.size(), " strides given, it must be none, or one for each of ",
                      rank, " axes");
    }
    if (std::any_of(from.shape.begin(), from.shape.end(), [](std::int64_t extent) { return extent < 0; })) {
        return refuse(name, ": shape ", shown(from.shape), " given, extents must be at least 0");
    }
    view = {from.data, type, {1, 1, 1, 1}, {}};
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
    byte_range bytes;
    if (!check_view(name, view, type, bytes)) { return false; }
    view = with_sound_strides(view);
    return true;
}

template <class Void>
bool make_heads_view(std::string_view name, const basic_array<Void>& from, const head_count& heads,
                     basic_tensor<Void>& view) {
    if (!require_type(name, from.type, data_type::float32)) { return false; }
    if (from.shape.size() != 3 && from.shape.size() != 4) {
        return refuse(name, ": rank ", from.shape.size(), " given, it must be 3 or 4");
    }
    if (!make_aligned_view(name, from, element_type::f32, view)) { return false; }
    if (from.shape.size() == 3) { return split_heads(name, heads, view); }
    if (heads.value.has_value() && *heads.value != view.heads()) {
        return refuse(heads.name, ": ", *heads.value, " given, ", name, " has ", view.heads(), " heads");
    }
    return true;
}

template bool make_aligned_view(std::string_view, const array&, element_type, tensor&);
template bool make_aligned_view(std::string_view, const const_array&, element_type, const_tensor&);
template bool make_heads_view(std::string_view, const array&, const head_count&, tensor&);
template bool make_heads_view(std::string_view, const const_array&, const head_count&, const_tensor&);

bool require_vector(std::string_view name, const const_array& from, std::int64_t count,
                    std::string_view reason, std::size_t size) {
    if (from.shape.size() != 1 || from.shape[0] != count) {
        return refuse(name, ": shape ", shown(from.shape), " given, it must be [", count, "], ", reason);
    }
    if (!from.strides.empty() && (from.strides.size() != 1 || from.strides[0] != 1)) {
        return refuse(name, ": strides ", shown(from.strides), " given, it must be without gaps");
    }
    if (count > 0 && from.data == nullptr) { return refuse(name, ": null data given, it has elements"); }
    const auto address = reinterpret_cast<std::uintptr_t>(from.data);
    if (address % size != 0) {
        return refuse(name, ": data at address ", address, " given, it must be a multiple of ", size);
    }
    if (static_cast<std::uintptr_t>(count) > (std::numeric_limits<std::uintptr_t>::max() - address) / size) {
        return refuse(name, ": ", count, " elements from address ", address,
                      " given, all must have addresses");
    }
    return true;
}

}  // namespace tilewise::onnx

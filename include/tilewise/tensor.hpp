// Non-owning views of query, key, value and output tensors.
//
// A view is a pointer, an element type, four extents and four strides; making or copying one allocates
// nothing and reads no element. Views are checked when they are used (see attention.hpp), not when they
// are made, so that a wrong one gives an error which names the argument.

#ifndef TILEWISE_TENSOR_HPP
#define TILEWISE_TENSOR_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <tilewise/element_type.hpp>
#include <tilewise/export.hpp>
#include <tilewise/half.hpp>
#include <tilewise/quantized.hpp>

namespace tilewise {

/// The four axes of a view, as indices into its extents and strides.
enum class axis : std::uint8_t { batch, heads, tokens, head_dim };

template <class Void>
struct basic_tensor;

namespace detail {
// Throw std::invalid_argument. Here there is no throw, so that programs without exceptions can use views.
TILEWISE_API void refuse_wrong_slice(const basic_tensor<const void>& view, axis along, std::int64_t first,
                                     std::int64_t count);
[[noreturn]] TILEWISE_API void refuse_extent(std::int64_t extent);
[[noreturn]] TILEWISE_API void refuse_span(std::size_t elements);
}  // namespace detail

/// A view of a tensor [batch, heads, tokens, head_dim], whatever the order of its axes in memory.
///
/// `Void` is `void` (tilewise::tensor, may be written) or `const void` (tilewise::const_tensor). Element
/// (b, h, t, i) is at data + b * strides[0] + h * strides[1] + t * strides[2] + i * strides[3], counted in
/// elements, not bytes. A stride may be 0 (broadcast) or negative in a view that is only read. The caller
/// keeps the memory alive and guarantees that every element that the view describes is inside it.
///
/// Types that say so (i8, e4m3, e5m2) have scales in memory of their own: element (b, h, t, i) is worth its
/// number times scales[b * scale_strides[0] + h * scale_strides[1] + t * scale_strides[2] + i *
/// scale_strides[3]]. A stride of 0 is one scale for all; with_scales() sets the common ones.
///
/// Where elements are stored in blocks of 32 (q8_0, q4_0), strides count elements all the same: the last one
/// is 1, and the others, as head_dim, are multiples of 32.
template <class Void>
struct basic_tensor {
    Void* data = nullptr;
    element_type type = element_type::f32;
    std::array<std::int64_t, 4> extents{};  ///< batch, heads, tokens, head_dim
    std::array<std::int64_t, 4> strides{};  ///< in elements, in the same order
    const float* scales = nullptr;          ///< null for types without
    std::array<std::int64_t, 4> scale_strides{};

    constexpr basic_tensor() = default;
    constexpr basic_tensor(Void* data_, element_type type_, std::array<std::int64_t, 4> extents_,
                           std::array<std::int64_t, 4> strides_)
        : data(data_), type(type_), extents(extents_), strides(strides_) {}

    /// A view that may be written is a view that may be read.
    template <class Other>
    requires(std::is_const_v<Void>&& std::is_same_v<Other, std::remove_const_t<Void>>) constexpr basic_tensor(
        const basic_tensor<Other>& other)
        : data(other.data),
          type(other.type),
          extents(other.extents),
          strides(other.strides),
          scales(other.scales),
          scale_strides(other.scale_strides) {}

    [[nodiscard]] constexpr std::int64_t batch() const { return extents[0]; }
    [[nodiscard]] constexpr std::int64_t heads() const { return extents[1]; }
    [[nodiscard]] constexpr std::int64_t tokens() const { return extents[2]; }
    [[nodiscard]] constexpr std::int64_t head_dim() const { return extents[3]; }

    /// The part of this view with indices first .. first + count - 1 on one axis; no copy.
    /// Throws std::invalid_argument if that is not inside the view, or would begin where no address is.
    /// Without elements, data stays where it is.
    [[nodiscard]] basic_tensor slice(axis along, std::int64_t first, std::int64_t count) const {
        const auto a = static_cast<std::size_t>(along);
        detail::refuse_wrong_slice(*this, along, first, count);
        basic_tensor part = *this;
        part.extents[a] = count;
        for (const std::int64_t extent : part.extents) {
            if (extent == 0) { return part; }  // and nobody checks such a view's strides
        }
        const element_block block = block_of(type);
        if (data != nullptr) {
            using byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
            part.data = static_cast<byte*>(data) + first * strides[a] / block.elements * block.bytes;
        }
        if (scales != nullptr) { part.scales = scales + first * scale_strides[a]; }
        return part;
    }
};

using tensor = basic_tensor<void>;
using const_tensor = basic_tensor<const void>;

namespace detail {
template <class Stored>
using view_of = basic_tensor<std::conditional_t<std::is_const_v<Stored>, const void, void>>;

/// The product of two extents as a stride: the largest number if it overflows, which is refused when the view
/// is used, and 0 for a negative extent, which is refused as well.
[[nodiscard]] constexpr std::int64_t stride_over(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    if (a <= 0 || b <= 0) { return 0; }
    return b > largest / a ? largest : a * b;
}

/// What memory of a C++ type stores, if it can be q, k, v or out.
template <class Stored>
struct stored_type {
    static constexpr bool exists = false;
};
template <class Stored>
struct stored_type<const Stored> : stored_type<Stored> {};
template <element_type Type>
struct stored_as {
    static constexpr bool exists = true;
    static constexpr element_type type = Type;
};
template <>
struct stored_type<float> : stored_as<element_type::f32> {};
template <>
struct stored_type<double> : stored_as<element_type::f64> {};
template <>
struct stored_type<float16> : stored_as<element_type::f16> {};
template <>
struct stored_type<bfloat16> : stored_as<element_type::bf16> {};
template <>
struct stored_type<std::int8_t> : stored_as<element_type::i8> {};
template <>
struct stored_type<float8_e4m3> : stored_as<element_type::e4m3> {};
template <>
struct stored_type<float8_e5m2> : stored_as<element_type::e5m2> {};
template <>
struct stored_type<q8_0_block> : stored_as<element_type::q8_0> {};
template <>
struct stored_type<q4_0_block> : stored_as<element_type::q4_0> {};
/// Elements in one object of a C++ type.
template <class Stored>
inline constexpr auto elements_in = static_cast<std::size_t>(block_of(stored_type<Stored>::type).elements);
}  // namespace detail

// The constructors below take memory of float, float16, bfloat16, double, or for k and v of what
// quantized.hpp has, const or not. Extents count elements, of which a block holds several.

/// A contiguous tensor with memory order [batch, heads, tokens, head_dim] (BHSD, as PyTorch has it).
template <class Stored>
requires(detail::stored_type<Stored>::exists)
    [[nodiscard]] constexpr detail::view_of<Stored> bhsd(Stored* data, std::int64_t batch, std::int64_t heads,
                                                         std::int64_t tokens, std::int64_t head_dim) {
    return {data,
            detail::stored_type<Stored>::type,
            {batch, heads, tokens, head_dim},
            {detail::stride_over(heads, detail::stride_over(tokens, head_dim)),
             detail::stride_over(tokens, head_dim), head_dim, 1}};
}

/// A contiguous tensor with memory order [batch, tokens, heads, head_dim] (BSHD, as FlashAttention has it).
template <class Stored>
requires(detail::stored_type<Stored>::exists)
    [[nodiscard]] constexpr detail::view_of<Stored> bshd(Stored* data, std::int64_t batch,
                                                         std::int64_t tokens, std::int64_t heads,
                                                         std::int64_t head_dim) {
    return {data,
            detail::stored_type<Stored>::type,
            {batch, heads, tokens, head_dim},
            {detail::stride_over(tokens, detail::stride_over(heads, head_dim)), head_dim,
             detail::stride_over(heads, head_dim), 1}};
}

/// The same layouts over a span, which must hold at least batch * heads * tokens * head_dim elements:
/// std::invalid_argument otherwise (also when an extent is negative).
template <class Stored>
requires(detail::stored_type<Stored>::exists)
    [[nodiscard]] detail::view_of<Stored> bhsd(std::span<Stored> data, std::int64_t batch, std::int64_t heads,
                                               std::int64_t tokens, std::int64_t head_dim);
template <class Stored>
requires(detail::stored_type<Stored>::exists)
    [[nodiscard]] detail::view_of<Stored> bshd(std::span<Stored> data, std::int64_t batch,
                                               std::int64_t tokens, std::int64_t heads,
                                               std::int64_t head_dim);

/// A contiguous [batch, heads, tokens] tensor with one value per query row, for options::lse; its head_dim
/// is 1.
template <class Stored>
requires(std::is_same_v<std::remove_const_t<Stored>, float> ||
         std::is_same_v<std::remove_const_t<Stored>, double>)
    [[nodiscard]] constexpr detail::view_of<Stored> row_values(Stored* data, std::int64_t batch,
                                                               std::int64_t heads, std::int64_t tokens) {
    return bhsd(data, batch, heads, tokens, 1);
}

/// What shares a scale: the elements of a token in one head, those of a head at one index of head_dim (also
/// called channel), or all of a head.
enum class scales_per : std::uint8_t { token, channel, head };

/// A view with scales that lie side by side, [batch, heads, tokens], [batch, heads, head_dim] or
/// [batch, heads]. For others, set scales and scale_strides.
template <class Void>
[[nodiscard]] constexpr basic_tensor<Void> with_scales(basic_tensor<Void> view, const float* scales,
                                                       scales_per shared) {
    const std::int64_t of_head = shared == scales_per::token     ? view.tokens()
                                 : shared == scales_per::channel ? view.head_dim()
                                                                 : 1;
    view.scales = scales;
    view.scale_strides = {detail::stride_over(view.heads(), of_head), of_head,
                          shared == scales_per::token ? 1 : 0, shared == scales_per::channel ? 1 : 0};
    return view;
}

/// Query, key and value views of one packed tensor; see packed_qkv.
template <class Void>
struct qkv_views {
    basic_tensor<Void> q;
    basic_tensor<Void> k;
    basic_tensor<Void> v;
};

/// Views of the output of a fused projection, contiguous [batch, tokens, heads + 2 * kv_heads, head_dim]:
/// each token holds its query heads, then its key heads, then its value heads.
template <class Stored>
requires(detail::stored_type<Stored>::exists)
    [[nodiscard]] qkv_views<std::conditional_t<std::is_const_v<Stored>, const void, void>> packed_qkv(
        Stored* data, std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
        std::int64_t head_dim) {
    const auto all = bshd(data, batch, tokens, heads + 2 * kv_heads, head_dim);
    return {all.slice(axis::heads, 0, heads), all.slice(axis::heads, heads, kv_heads),
            all.slice(axis::heads, heads + kv_heads, kv_heads)};
}

namespace detail {
/// Throws unless `size` elements hold a tensor of these extents (checked without overflow).
inline void require_span(std::size_t size, std::array<std::int64_t, 4> extents) {
    std::size_t needed = 1;
    bool fits = true;
    for (const std::int64_t extent : extents) {
        if (extent < 0) { refuse_extent(extent); }
        fits = fits && (extent == 0 || needed <= size / static_cast<std::size_t>(extent));
        needed *= static_cast<std::size_t>(extent);
    }
    for (const std::int64_t extent : extents) { fits = fits || extent == 0; }
    if (!fits) { refuse_span(size); }
}
}  // namespace detail

template <class Stored>
requires(detail::stored_type<Stored>::exists) detail::view_of<Stored> bhsd(std::span<Stored> data,
                                                                           std::int64_t batch,
                                                                           std::int64_t heads,
                                                                           std::int64_t tokens,
                                                                           std::int64_t head_dim) {
    detail::require_span(data.size() * detail::elements_in<Stored>, {batch, heads, tokens, head_dim});
    return bhsd(data.data(), batch, heads, tokens, head_dim);
}

template <class Stored>
requires(detail::stored_type<Stored>::exists) detail::view_of<Stored> bshd(std::span<Stored> data,
                                                                           std::int64_t batch,
                                                                           std::int64_t tokens,
                                                                           std::int64_t heads,
                                                                           std::int64_t head_dim) {
    detail::require_span(data.size() * detail::elements_in<Stored>, {batch, heads, tokens, head_dim});
    return bshd(data.data(), batch, tokens, heads, head_dim);
}

}  // namespace tilewise

#endif

#include "quantized_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::element_type;

/// The definition: 1 sign, 4 or 5 exponent and 3 or 2 fraction bits.
float float8_value(unsigned bits, element_type type) {
    const bool is_e4m3 = type == element_type::e4m3;
    const unsigned magnitude = bits % 128;
    const int fraction_bits = is_e4m3 ? 3 : 2;
    const int bias = is_e4m3 ? 7 : 15;
    const auto exponent = static_cast<int>(magnitude >> fraction_bits);
    const auto fraction = static_cast<int>(magnitude) - (exponent << fraction_bits);
    const float sign = bits < 128 ? 1.0F : -1.0F;
    if (is_e4m3 && magnitude == 127) { return quiet_nan; }
    if (!is_e4m3 && exponent == 31) { return fraction == 0 ? sign * infinity : quiet_nan; }
    const int significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    return sign * std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - bias - fraction_bits);
}

extents scale_strides_of(const extents& sizes, scale_order order) {
    const auto [batch, heads, tokens, dim] = sizes;
    switch (order) {
        case scale_order::per_token:
            return {heads * tokens, tokens, 1, 0};
        case scale_order::per_channel:
            return {heads * dim, dim, 0, 1};
        case scale_order::per_head:
            return {heads, 1, 0, 0};
        default:
            return {heads * tokens, 1, heads, 0};
    }
}

/// Strides in elements, for `heads` heads side by side.
extents strides_of(const extents& sizes, row_order order, count heads) {
    const count dim = sizes[3];
    switch (order) {
        case row_order::bshd:
        case row_order::neighbours:
            return {sizes[2] * heads * dim, dim, heads * dim, 1};
        case row_order::reversed_tokens:
            return {heads * sizes[2] * dim, sizes[2] * dim, -dim, 1};
        default:
            return {heads * sizes[2] * dim, sizes[2] * dim, dim, 1};
    }
}

template <class Number>
Number read(const std::byte* from) {
    Number number{};
    std::memcpy(&number, from, sizeof number);
    return number;
}

}  // namespace

bool has_scales(element_type type) {
    return type == element_type::i8 || type == element_type::e4m3 || type == element_type::e5m2;
}

quantized_tensor::quantized_tensor(const extents& sizes, element_type type, row_order order,
                                   std::uint64_t seed, scale_order scales) {
    const tilewise::element_block block = tilewise::block_of(type);
    const count heads = sizes[1] + (order == row_order::neighbours ? 2 : 0);
    const auto blocks = static_cast<std::size_t>(sizes[0] * heads * sizes[2] * sizes[3] / block.elements);
    const auto bytes = static_cast<std::size_t>(block.bytes);
    random_source random(seed);
    memory_.resize(blocks * bytes);
    for (std::byte& byte : memory_) {
        byte = static_cast<std::byte>(random.bits());
        while ((type == element_type::e4m3 || type == element_type::e5m2) &&
               !(std::fabs(float8_value(static_cast<unsigned>(byte), type)) <= 300.0F)) {
            byte = static_cast<std::byte>(random.bits());
        }
    }
    for (std::size_t b = 0; b < blocks && block.elements > 1; ++b) {
        const tilewise::float16 scale(0.01F * random.normal());
        std::memcpy(memory_.data() + b * bytes, &scale, sizeof scale);
    }
    const extents strides = strides_of(sizes, order, heads);
    const count first = order == row_order::reversed_tokens ? (sizes[2] - 1) * sizes[3]
                        : order == row_order::neighbours    ? sizes[3]
                                                            : 0;
    first_ = first / block.elements * block.bytes;
    view_ = {nullptr, type, sizes, strides};
    if (!has_scales(type)) { return; }
    view_.scale_strides = scale_strides_of(sizes, scales);
    std::int64_t last = 0;
    for (std::size_t a = 0; a < 4; ++a) { last += (sizes[a] - 1) * view_.scale_strides[a]; }
    for (std::int64_t n = 0; n <= last; ++n) { scales_.push_back(0.01F * random.normal()); }
}

tilewise::const_tensor quantized_tensor::view() const {
    tilewise::const_tensor made = view_;
    made.data = memory_.data() + first_;
    if (!scales_.empty()) { made.scales = scales_.data(); }
    return made;
}

double quantized_tensor::value(count b, count h, count t, count i) const {
    const extents& s = view_.strides;
    const tilewise::element_block block = tilewise::block_of(view_.type);
    const count row = (b * s[0] + h * s[1] + t * s[2]) / block.elements;
    const std::byte* const from = memory_.data() + first_ + (row + i / block.elements) * block.bytes;
    if (has_scales(view_.type)) {
        const extents& n = view_.scale_strides;
        const auto scale =
            static_cast<double>(scales_[static_cast<std::size_t>(b * n[0] + h * n[1] + t * n[2] + i * n[3])]);
        return scale * static_cast<double>(number(first_ + row * block.bytes + i));
    }
    const auto scale = static_cast<double>(static_cast<float>(read<tilewise::float16>(from)));
    if (view_.type == element_type::q8_0) { return scale * read<std::int8_t>(from + 2 + i % 32); }
    const int both = read<std::uint8_t>(from + 2 + i % 16);
    return scale * ((i % 32 < 16 ? both % 16 : both / 16) - 8);
}

float quantized_tensor::number(count place) const {
    const std::byte* const from = memory_.data() + place;
    return view_.type == element_type::i8 ? static_cast<float>(read<std::int8_t>(from))
                                          : float8_value(read<std::uint8_t>(from), view_.type);
}

void quantized_tensor::spoil_scales_from(count token) {
    for (auto at = static_cast<std::size_t>(token); at < scales_.size(); ++at) { scales_[at] = quiet_nan; }
}

owned_tensor quantized_tensor::values() const {
    owned_tensor made(view_.extents);
    for (count b = 0; b < view_.batch(); ++b) {
        for (count h = 0; h < view_.heads(); ++h) {
            for (count t = 0; t < view_.tokens(); ++t) {
                for (count i = 0; i < view_.head_dim(); ++i) {
                    made.at(b, h, t, i) = static_cast<float>(value(b, h, t, i));
                }
            }
        }
    }
    return made;
}

}  // namespace tilewise_tests

#include "stored_input.hpp"

#include <span>

#include <tilewise/quantize.hpp>

#include "reference_elements.hpp"
#include "stored.hpp"

namespace tilewise::cli {
namespace {

scales_per sharing_of(const storage& how) {
    return how.kv == element_type::i8 ? how.scales : scales_per::head;
}

/// The numbers and the scales of one head.
void quantize_head(std::span<const float> values, const storage& how, std::byte* numbers,
                   std::span<float> scales) {
    const auto as = [&]<class Number>(Number* first) { return std::span<Number>(first, values.size()); };
    if (how.kv == element_type::e4m3) {
        scales[0] = quantize_e4m3(values, as(reinterpret_cast<float8_e4m3*>(numbers)));
    } else if (how.kv == element_type::e5m2) {
        scales[0] = quantize_e5m2(values, as(reinterpret_cast<float8_e5m2*>(numbers)));
    } else if (how.scales == scales_per::token) {
        quantize_i8_per_token(values, as(reinterpret_cast<std::int8_t*>(numbers)), scales);
    } else {
        quantize_i8_per_channel(values, as(reinterpret_cast<std::int8_t*>(numbers)), scales);
    }
}

/// Of types that have scales in memory of their own.
stored_tensor quantize(const const_tensor& shape, const std::vector<float>& values, const storage& how) {
    const scales_per sharing = sharing_of(how);
    const auto heads = static_cast<std::size_t>(shape.heads());
    const auto of_head = static_cast<std::size_t>(sharing == scales_per::token     ? shape.tokens()
                                                  : sharing == scales_per::channel ? shape.head_dim()
                                                                                   : 1);
    stored_tensor made{std::vector<std::byte>(values.size()), std::vector<float>(heads * of_head), shape};
    const std::size_t size = values.size() / heads;
    for (std::size_t h = 0; h < heads; ++h) {
        quantize_head(std::span(values).subspan(h * size, size), how, made.bytes.data() + h * size,
                      std::span(made.scales).subspan(h * of_head, of_head));
    }
    made.view = with_scales(made.view, made.scales.data(), sharing);
    return made;
}

stored_tensor store(const const_tensor& shape, const std::vector<float>& values, element_type type,
                    const storage& how) {
    stored_tensor made = measure::has_scales(type)
                             ? quantize(shape, values, how)
                             : stored_tensor{measure::stored_as(type, values), {}, shape};
    made.view.data = made.bytes.data();
    made.view.type = type;
    return made;
}

std::vector<float> worth_of(const stored_tensor& stored) {
    const const_tensor& view = stored.view;
    std::vector<float> values;
    for (std::int64_t h = 0; h < view.heads(); ++h) {
        for (std::int64_t t = 0; t < view.tokens(); ++t) {
            for (std::int64_t i = 0; i < view.head_dim(); ++i) {
                const auto place = static_cast<std::int64_t>(values.size());
                const auto& s = view.scale_strides;
                const float scale =
                    view.scales == nullptr ? 1.0F : view.scales[h * s[1] + t * s[2] + i * s[3]];
                values.push_back(scale * reference::read_real<float>(view.data, view.type, place));
            }
        }
    }
    return values;
}

}  // namespace

std::string name_of(const storage& how) {
    const std::string kv = measure::name_of(how.kv);
    if (how.q == how.kv) { return "q, k, v in " + kv; }
    const char* const shared = how.kv != element_type::i8          ? ""
                               : how.scales == scales_per::channel ? " per channel"
                                                                   : " per token";
    return "k, v in " + kv + shared;
}

stored_input::stored_input(const input& from, const storage& how)
    : q(store(from.q_view(), from.q, how.q, how)),
      k(store(from.k_view(), from.k, how.kv, how)),
      v(store(from.v_view(), from.v, how.kv, how)),
      worth{from.spec, worth_of(q), worth_of(k), worth_of(v)} {}

}  // namespace tilewise::cli

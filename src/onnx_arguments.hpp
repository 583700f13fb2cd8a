// The checks of the ONNX operator's arguments, and the views and options that they establish. Everything of
// the operator that is a mask or a position is decided here; nothing here reads or writes an element of a
// tensor but the lengths.

#ifndef TILEWISE_SRC_ONNX_ARGUMENTS_HPP
#define TILEWISE_SRC_ONNX_ARGUMENTS_HPP

#include <cstdint>
#include <optional>
#include <tilewise/attention.hpp>
#include <tilewise/onnx.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise::onnx {

/// A checked call; all views are [batch, heads, tokens, head_dim].
struct call {
    const_tensor q;
    const_tensor k;  ///< new keys
    const_tensor v;
    const_tensor past_key;  ///< no tokens if there is no past
    const_tensor past_value;
    tensor y;
    std::optional<tensor> present_key;
    std::optional<tensor> present_value;
    std::optional<tensor> qk;
    std::int64_t qk_mode;
    std::int64_t keys;          ///< past and new
    std::int64_t reached_keys;  ///< those that the mask's last axis reaches; the others are masked
    options how;                ///< for the first reached_keys keys
};

[[nodiscard]] bool check_arguments(const inputs& given, const attributes& set, const outputs& wanted,
                                   const resources& use, call& c);

/// Whether `part` has the memory of `whole`, element for element.
bool is_in_place(const const_tensor& part, const const_tensor& whole);

}  // namespace tilewise::onnx

#endif

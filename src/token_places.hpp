// Where tokens are in memory, as the kernels are told.

#ifndef TILEWISE_SRC_TOKEN_PLACES_HPP
#define TILEWISE_SRC_TOKEN_PLACES_HPP

#include <cstddef>
#include <cstdint>
#include <tilewise/tensor.hpp>
#include <type_traits>

#include "kernels/interface.hpp"

namespace tilewise {

template <class Void>
Void* token_of(const basic_tensor<Void>& view, std::int64_t batch, std::int64_t head, std::int64_t token) {
    if (view.data == nullptr) { return nullptr; }
    using byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    const std::int64_t offset = batch * view.strides[0] + head * view.strides[1] + token * view.strides[2];
    const element_block block = block_of(view.type);
    return static_cast<byte*>(view.data) + offset / block.elements * block.bytes;
}

inline const float* scales_of_token(const const_tensor& view, std::int64_t batch, std::int64_t head,
                                    std::int64_t token) {
    if (view.scales == nullptr) { return nullptr; }
    return view.scales + batch * view.scale_strides[0] + head * view.scale_strides[1] +
           token * view.scale_strides[2];
}

inline kernels::group_out group_of(const tensor& view, std::int64_t batch, std::int64_t head,
                                   std::int64_t token) {
    return {token_of(view, batch, head, token), view.strides[2], view.strides[1], view.strides[3]};
}

inline kernels::row_layout layout_of(const const_tensor& view) {
    return {view.strides[2], view.strides[3],      view.type, view.scale_strides[2], view.scale_strides[3],
            view.strides[0], view.scale_strides[0]};
}

}  // namespace tilewise

#endif

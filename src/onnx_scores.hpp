// The ONNX operator's qk_matmul_output: scores on their way through the computation, or the weights.

#ifndef TILEWISE_SRC_ONNX_SCORES_HPP
#define TILEWISE_SRC_ONNX_SCORES_HPP

#include <cstdint>
#include <tilewise/attention.hpp>
#include <tilewise/tensor.hpp>

#include "heap_array.hpp"
#include "onnx_arguments.hpp"

namespace tilewise::onnx {

/// Mode 3: makes a computation of y write the weights of all query rows, too. `rows` must live as long as
/// `how`.
[[nodiscard]] bool add_weights(const call& c, heap_array<std::int64_t>& rows, options& how);

/// Keys that the mask does not reach are no part of the computation: their weights are 0.
void finish_weights(const call& c);

/// Modes 0 to 2: writes the scores, by a computation of its own, so that that of y stays as it is. `k` holds
/// all keys, past and new.
[[nodiscard]] bool write_scores(const call& c, const const_tensor& k);

}  // namespace tilewise::onnx

#endif

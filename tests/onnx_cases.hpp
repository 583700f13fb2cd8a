// One call of the ONNX operator: its description, its tensors, its results, and a float64 model of them that
// is written from the operator's text and knows nothing of views and options.

#ifndef TILEWISE_TESTS_ONNX_CASES_HPP
#define TILEWISE_TESTS_ONNX_CASES_HPP

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tilewise/onnx.hpp>

#include "support.hpp"

namespace tilewise_tests {

using shape = std::vector<std::int64_t>;

struct onnx_case {
    std::int64_t batch = 2;
    std::int64_t q_heads = 4;
    std::int64_t kv_heads = 2;
    std::int64_t queries = 3;
    std::int64_t new_keys = 5;
    std::optional<std::int64_t> past = std::nullopt;
    std::int64_t key_dim = 4;
    std::int64_t value_dim = 3;
    bool has_rank_3 = false;
    std::optional<shape> mask = std::nullopt;
    bool mask_is_boolean = false;
    std::optional<std::vector<std::int64_t>> lengths = std::nullopt;
    bool has_sinks = false;
    bool wants_present = false;
    bool wants_qk = false;
    tilewise::onnx::attributes set = {};  ///< without the head counts, which the case adds
    std::uint64_t seed = 1;

    [[nodiscard]] std::int64_t keys() const { return past.value_or(0) + new_keys; }
};

std::string show(const onnx_case& which);

/// A tensor and its shape; a boolean one if `booleans` is in use.
struct onnx_tensor {
    shape extents;
    std::vector<float> floats;
    std::vector<std::uint8_t> booleans;
    bool is_boolean = false;

    [[nodiscard]] tilewise::onnx::const_array view() const;
    [[nodiscard]] tilewise::onnx::array view();
};

struct onnx_tensors {
    onnx_tensor q, k, v, past_key, past_value, mask, sinks;
    onnx_tensor y, present_key, present_value, qk;
    shape lengths_shape;  ///< of the case's lengths
};

/// Inputs with random values, outputs full of canaries.
onnx_tensors make_tensors(const onnx_case& which);

/// The three arguments of the call; they refer to the case and the tensors.
struct onnx_call {
    tilewise::onnx::inputs given;
    tilewise::onnx::attributes set;
    tilewise::onnx::outputs wanted;

    void run(const tilewise::onnx::resources& use = {}) const {
        tilewise::onnx::attention(given, set, wanted, use);
    }
};
onnx_call make_call(const onnx_case& which, onnx_tensors& tensors);

/// Computes y and, if wanted, qk_matmul_output in float64 and compares with what `tensors` has; present with
/// its parts, bit by bit. Returns the first difference in words, or nothing.
std::string difference_from_model(const onnx_case& which, const onnx_tensors& tensors);

/// Makes tensors, calls the operator and compares with the model.
void check_model(const onnx_case& which);

}  // namespace tilewise_tests

#endif

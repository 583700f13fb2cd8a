// What the comparison runs on: the activations of a real model that the repository carries, or random
// numbers.

#ifndef TILEWISE_CLI_INPUT_HPP
#define TILEWISE_CLI_INPUT_HPP

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <tilewise/tensor.hpp>

namespace tilewise::cli {

/// Describes an input so that another process can make the same one.
struct input_spec {
    std::string layer;           ///< "early" or "late" for real input, empty for random
    std::filesystem::path data;  ///< the directory of the real input's files
    std::int64_t tokens = 0;     ///< the rest is known for random input, and read from the files for real
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;

    [[nodiscard]] bool is_real() const { return !layer.empty(); }
    [[nodiscard]] std::string name() const { return is_real() ? "real, " + layer : "random"; }

    /// Bytes of q, k, v and the output.
    [[nodiscard]] double bytes() const;
};

/// Contiguous f32 tensors [1, heads, tokens, head_dim].
struct input {
    input_spec spec;
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;

    [[nodiscard]] const_tensor q_view() const;
    [[nodiscard]] const_tensor k_view() const;
    [[nodiscard]] const_tensor v_view() const;
    [[nodiscard]] tensor out_view(float* out) const;
};

/// Whether the files of this layer are there.
[[nodiscard]] bool has_real_input(const input_spec& spec);

/// Completes a spec of real input with the shapes in the files. Throws run_error if they do not fit.
[[nodiscard]] input make_input(const input_spec& spec);

/// `count` nearly normal values (mean 0, variance 1) that are the same on every machine: sums of integers
/// and one rounding, no library functions. Different streams of one seed are independent.
[[nodiscard]] std::vector<float> random_values(std::size_t count, std::uint64_t stream);

}  // namespace tilewise::cli

#endif

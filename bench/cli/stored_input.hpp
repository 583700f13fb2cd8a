// The q, k and v of an input in storage types, and what they are worth there.

#ifndef TILEWISE_CLI_STORED_INPUT_HPP
#define TILEWISE_CLI_STORED_INPUT_HPP

#include <cstddef>
#include <string>
#include <vector>

#include <tilewise/tensor.hpp>

#include "input.hpp"

namespace tilewise::cli {

struct storage {
    element_type q;
    element_type kv;
    scales_per scales = scales_per::token;  ///< of i8
};

/// "k, v in i8 per channel"
[[nodiscard]] std::string name_of(const storage& how);

/// Contiguous, [1, heads, tokens, head_dim].
struct stored_tensor {
    std::vector<std::byte> bytes;
    std::vector<float> scales;
    const_tensor view;
};

struct stored_input {
    stored_tensor q;
    stored_tensor k;
    stored_tensor v;
    input worth;  ///< the numbers that the library must read there

    stored_input(const input& from, const storage& how);
    /// Whether storing changed nothing.
    [[nodiscard]] bool is_exact(const input& from) const {
        return worth.q == from.q && worth.k == from.k && worth.v == from.v;
    }
};

}  // namespace tilewise::cli

#endif

// Whether a result is right: its bits against the library's oracle, its error against float64.

#ifndef TILEWISE_CLI_AGREEMENT_HPP
#define TILEWISE_CLI_AGREEMENT_HPP

#include <cstdint>
#include <vector>

#include <tilewise/attention.hpp>

#include "input.hpp"

namespace tilewise::cli {

struct agreement {
    bool bits_equal = true;
    double max_abs_difference_float64 = 0;  ///< NaN if the result has one where float64 has none
    std::int64_t tokens_checked = 0;        ///< query tokens, each with all its heads
};

/// The query tokens to check: all, if that takes well under a second, else the first, the last, those at the
/// edges of tiles and blocks, and a random choice.
[[nodiscard]] std::vector<std::int64_t> tokens_to_check(const input_spec& spec, bool causal,
                                                        const plan& plan);

/// Compares rows of `out`, contiguous [1, heads, tokens, head_dim], with reference::attention. Each row is
/// computed on its own, from the keys that it sees, so that no tokens x tokens memory is needed.
[[nodiscard]] agreement check(const input& from, bool causal, const std::vector<float>& out,
                              const std::vector<std::int64_t>& tokens, int threads);

}  // namespace tilewise::cli

#endif

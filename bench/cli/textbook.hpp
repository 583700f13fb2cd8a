// The textbook's softmax(Q K^T / sqrt(d)) V, which knows nothing of the library: what errors are measured
// against.

#ifndef TILEWISE_CLI_TEXTBOOK_HPP
#define TILEWISE_CLI_TEXTBOOK_HPP

#include <cstdint>
#include <vector>

#include "input.hpp"

namespace tilewise::cli {

template <class Real>
struct textbook_row {
    std::vector<Real> out;  ///< [head_dim]
    Real lse;
};

/// One query token of one head, which sees the first `keys` keys; computed in Real, double or long double.
template <class Real>
[[nodiscard]] textbook_row<Real> compute_textbook_row(const input& from, std::int64_t head,
                                                      std::int64_t token, std::int64_t keys);

}  // namespace tilewise::cli

#endif

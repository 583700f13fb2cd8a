// Covering selections: few cases in which every pair of values of any two axes comes up.

#ifndef TILEWISE_TESTS_PAIRWISE_HPP
#define TILEWISE_TESTS_PAIRWISE_HPP

#include <cstddef>
#include <functional>
#include <vector>

namespace tilewise_tests {

/// One value index per axis; `unset` where none is chosen yet.
using selection = std::vector<std::size_t>;
inline constexpr std::size_t unset = static_cast<std::size_t>(-1);

/// Selections from axes with the given numbers of values, so that each pair of values of two axes is in at
/// least one of them. `allowed` is asked about selections with unset axes too, and must answer no only if
/// no choice for those could help; a pair that it forbids is left out. The result is the same on every
/// system.
std::vector<selection> cover_pairs(const std::vector<std::size_t>& sizes,
                                   const std::function<bool(const selection&)>& allowed);

}  // namespace tilewise_tests

#endif

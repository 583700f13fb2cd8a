// Options that must be refused, by name and before anything is written.

#ifndef TILEWISE_TESTS_REFUSALS_HPP
#define TILEWISE_TESTS_REFUSALS_HPP

#include <functional>
#include <string>
#include <tilewise/attention.hpp>
#include <vector>

#include "cases.hpp"

namespace tilewise_tests {

/// What a call says when it refuses its arguments; empty if it does not.
std::string refusal_of(const std::function<void()>& call);

/// Checks that a call refuses its arguments, with all `parts` in what it says.
void check_refusal(const std::function<void()>& call, const std::vector<std::string>& parts);

/// What is computed in all of these cases.
inline constexpr attention_case refused_sizes{
    .batch = 2, .heads = 4, .kv_heads = 2, .queries = 6, .keys = 9, .key_dim = 4, .value_dim = 3};

/// Checks that the options are refused by both formulations and the plan, with all `parts` in the message.
void refuses(const tilewise::options& how, const std::vector<std::string>& parts);

/// The same for inputs and an output of the caller's, which must not be written.
void refuses(const inputs& given, const owned_tensor& out, const tilewise::options& how,
             const std::vector<std::string>& parts);

}  // namespace tilewise_tests

#endif

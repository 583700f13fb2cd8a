// The ways in which a program can ask for attention: they must do the same.

#ifndef TILEWISE_TESTS_FUZZ_ENTRY_POINTS_HPP
#define TILEWISE_TESTS_FUZZ_ENTRY_POINTS_HPP

#include <tilewise.h>

#include <functional>
#include <string>
#include <tilewise/attention.hpp>

namespace tilewise_tests {

/// What a call said when it refused its arguments; empty if it did not. Any other exception is a finding.
std::string refusal_of(const std::function<void()>& call);

/// The arguments of one call.
struct call_view {
    const tilewise::const_tensor& q;
    const tilewise::const_tensor& k;
    const tilewise::const_tensor& v;
    const tilewise::tensor& out;
};

/// The same description for C, which counts query_starts and key_starts together.
tilewise_tensor in_c(const tilewise::const_tensor& view);
bool can_be_said_in_c(const tilewise::options& how);
tilewise_options in_c(const tilewise::options& how);

/// What the last function of C said, given its status; empty if it worked.
std::string refusal_of(tilewise_status status);

enum class entry_point { throwing, status, c };
constexpr entry_point all_entry_points[] = {entry_point::throwing, entry_point::status, entry_point::c};

/// attention() by that way, or by the first one if that one has not all the options.
std::string compute(entry_point by, const call_view& call, const tilewise::options& how);

}  // namespace tilewise_tests

#endif

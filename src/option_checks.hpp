// Checks of options, and what they mean to the kernels.

#ifndef TILEWISE_SRC_OPTION_CHECKS_HPP
#define TILEWISE_SRC_OPTION_CHECKS_HPP

#include <array>
#include <cstdint>
#include <string_view>
#include <tilewise/attention.hpp>

#include "arguments.hpp"
#include "views.hpp"

namespace tilewise {

/// Packed sequences take the place of the batch.
[[nodiscard]] bool check_packing(const options& how, const const_tensor& q, const const_tensor& k,
                                 problem& p);

/// Keys in pages: k and v are pools then.
[[nodiscard]] bool check_pages(const options& how, const const_tensor& k, memory_map& memory, problem& p);

/// All options that say what is computed; the sizes of `p` are known.
[[nodiscard]] bool check_options(const options& how, memory_map& memory, problem& p);

/// The workspace is apart from all else.
[[nodiscard]] bool check_workspace(const options& how, memory_map& memory);

/// A result for each query row or key, of the given type and extents; nothing if its data is null.
[[nodiscard]] bool check_result(std::string_view name, const tensor& view, element_type type,
                                const std::array<std::int64_t, 4>& extents, memory_map& memory);

/// Results besides the output, which are optional.
[[nodiscard]] bool check_results(const options& how, const const_tensor& q, const const_tensor& k,
                                 memory_map& memory, problem& p);

/// Whether a call has anything to do: a result with elements, or scores for a function.
bool has_results(const tensor& out, const options& how, const problem& p);

}  // namespace tilewise

#endif

// Checks of options, and what they mean to the kernels.

#ifndef TILEWISE_SRC_OPTION_CHECKS_HPP
#define TILEWISE_SRC_OPTION_CHECKS_HPP

#include <tilewise/attention.hpp>

#include "arguments.hpp"
#include "views.hpp"

namespace tilewise {

/// The memory that a call writes.
struct written_ranges {
    byte_range out;
    byte_range lse;
};

/// Packed sequences take the place of the batch.
void check_packing(const options& how, const const_tensor& q, const const_tensor& k, problem& p);

/// All other options but lse; the sizes of `p` are known.
void check_options(const options& how, const written_ranges& written, problem& p);

}  // namespace tilewise

#endif

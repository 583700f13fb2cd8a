// The naive formulation: the whole score matrix in memory, scalar, readable from top to bottom as the
// formula. It is the specification of every bit that attention() gives.

#ifndef TILEWISE_REFERENCE_HPP
#define TILEWISE_REFERENCE_HPP

#include <tilewise/attention.hpp>
#include <tilewise/export.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise::reference {

/// Computes what tilewise::attention computes, with the same arguments, errors and bits, also in the
/// arithmetic that such a call gets on the active instruction set (plan::arithmetic).
///
/// Materialises the n_queries x n_keys scores of one head at a time: it allocates 4 bytes (f64: 8) times
/// n_queries times n_keys, and throws std::bad_alloc if it cannot. Single-threaded and slow; options::threads
/// and options::scratch_budget are checked and otherwise ignored. Thread-safe.
TILEWISE_API void attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                            const tensor& out, const options& how = {});

/// The same, and returns what that throws (status.hpp).
TILEWISE_API status try_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                                  const tensor& out, const options& how = {}) noexcept;

}  // namespace tilewise::reference

#endif

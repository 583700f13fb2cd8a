// The oracle's score matrix, and who sees what (contract.hpp, steps 1 and 2). Real, what is computed in, is
// float or double.

#ifndef TILEWISE_SRC_REFERENCE_SCORES_HPP
#define TILEWISE_SRC_REFERENCE_SCORES_HPP

#include <cstdint>

#include <tilewise/tensor.hpp>

#include "arguments.hpp"

namespace tilewise::reference {

/// One head of one sequence.
struct head_of {
    std::int64_t batch;  ///< number of the sequence
    std::int64_t head;
    sequence of;
};

/// Where an element is, counted in elements.
std::int64_t index_in(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token,
                      std::int64_t i);

/// Rows of one head, side by side: [tokens][head_dim].
template <class Real>
void copy_head(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t first,
               std::int64_t tokens, Real* rows);

/// The same of keys or values, which may be in pages.
template <class Real>
void copy_keys(const const_tensor& x, const problem& p, const sequence& of, std::int64_t index,
               std::int64_t head, Real* rows);

/// Whether query token i sees key token j, whose score is t.
template <class Real>
bool is_visible(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, Real t);

/// The score matrix of a head, [queries][keys]. Masked keys keep a score that nobody looks at.
template <class Real>
void score_head(const problem& p, const head_of& h, const Real* q_rows, const Real* k_rows, Real* scores);

}  // namespace tilewise::reference

#endif

// Attention over parts of the keys, combined: for shared prefixes, cascades, and keys that are spread over
// machines (ring attention, Liu et al., arXiv:2310.01889).

#ifndef TILEWISE_MERGE_HPP
#define TILEWISE_MERGE_HPP

#include <span>

#include <tilewise/export.hpp>
#include <tilewise/status.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise {

/// What attention() gave for the same queries and some of the keys.
struct partial_result {
    const_tensor out;  ///< [batch, heads, tokens, value_dim], f32, f16 or bf16
    const_tensor lse;  ///< [batch, heads, tokens, 1], f32
};

/// Attention over all keys from attention over parts of them, each key being in one part:
///
///     lse = log sum_i exp(lse_i),   out = sum_i out_i exp(lse_i - lse)
///
///   out  [batch, heads, tokens, value_dim], f32, f16 or bf16
///   lse  [batch, heads, tokens, 1], f32; not written if its data is null
///
/// A part whose lse is -inf in a row contributes nothing to that row, and its out is not read there; if there
/// is no other, the row is 0, and its lse -inf. An lse of NaN or +inf makes its row NaN; NaN and infinities
/// in out follow IEEE 754. A sink belongs to one of the parts, not to each of them.
///
/// Computed in binary64 in the order of the parts, with an exponential and a logarithm of our own, and
/// rounded once: the same bits everywhere. One part alone stays as it is. The result is exact within what
/// rounding left in the parts: the error of lse_i is a relative error of the part's share, about 2^-24 max(1,
/// |lse_i|) at best. So it does not have the bits of one call with all keys; where these are wanted, pass the
/// keys through an attention_stream (stream.hpp) in order, or its saved state from machine to machine.
///
/// out and lse may be the views of one of the parts, which is then replaced, and must be apart from all else.
/// Throws std::invalid_argument before anything is written. Runs in the calling thread; allocates a few bytes
/// per part. Thread-safe.
TILEWISE_API void merge(std::span<const partial_result> parts, const tensor& out, const tensor& lse = {});

/// The same, and returns what that throws (status.hpp).
TILEWISE_API status try_merge(std::span<const partial_result> parts, const tensor& out,
                              const tensor& lse = {}) noexcept;

}  // namespace tilewise

#endif

// Rotary position embedding (RoPE; Su et al., arXiv:2104.09864): pairs of elements of a query or key are
// turned by an angle proportional to the token's position, so that scores depend on distances.

#ifndef TILEWISE_ROTARY_HPP
#define TILEWISE_ROTARY_HPP

#include <cstdint>
#include <optional>
#include <span>

#include <tilewise/export.hpp>
#include <tilewise/status.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise {

/// Which elements of the first `dims` make a pair.
enum class rotary_pairs : std::uint8_t {
    halves,      ///< i and i + dims / 2 (GPT-NeoX, Llama in Hugging Face's layout)
    interleaved  ///< 2 i and 2 i + 1 (the paper, GPT-J, Llama in Meta's layout)
};

struct rotary_options {
    rotary_pairs pairs = rotary_pairs::halves;

    /// Only the first `dims` elements of each row are turned: even, from 0 to head_dim; by default all.
    std::optional<std::int64_t> dims = std::nullopt;

    /// Pair i of a token at position p is turned by the angle p * theta^(-2 i / dims). From 1 to 2^64.
    double theta = 10000.0;

    /// Token t is at position first_position + t; or at positions[t], if that is not empty, or at
    /// positions[b * tokens + t], if there are so many. Positions are within 2^31 of 0.
    std::int64_t first_position = 0;
    std::span<const std::int64_t> positions = {};
};

/// Turns x, [batch, heads, tokens, head_dim] in f32, f16 or bf16, in place: with c and s the cosine and the
/// sine of the angle, rounded to f32, a pair (a, b) becomes
///
///     a c - b s,   b c + a s
///
/// in f32, each operation rounded; what is stored in 16 bits is rounded once more when it is written.
///
/// Cosines and sines are computed in binary64 by a fixed sequence of operations, so that they have the same
/// bits everywhere: at most 2^-25 + 2^-47 |angle| off (2^-25 is what rounding to f32 costs). Many models
/// were trained with frequencies and angles in f32, whose error is |angle| 2^-24: pass tables where their
/// very bits are wanted.
///
/// Throws std::invalid_argument, before anything is written. Runs in the calling thread; allocates nothing
/// for rows of which 512 elements or fewer are turned, else some bytes per element of a row. Thread-safe.
/// Turning queries and keys once, before they go into a cache, is what attention() expects.
TILEWISE_API void rotary_embedding(const tensor& x, const rotary_options& how = {});

/// The same with tables of cosines and sines, f32 [1, 1, positions, dims / 2], of which a token at position p
/// uses row p; theta is ignored. Positions must be in the tables.
TILEWISE_API void rotary_embedding(const tensor& x, const const_tensor& cosines, const const_tensor& sines,
                                   const rotary_options& how = {});

/// Fills such tables: row t is for the position that token t has by `how`. dims, if it is given, must be
/// twice the tables' head_dim. Models that scale positions or frequencies change or make their own tables.
TILEWISE_API void rotary_tables(const tensor& cosines, const tensor& sines, const rotary_options& how = {});

// The same, and return what these throw (status.hpp).
TILEWISE_API status try_rotary_embedding(const tensor& x, const rotary_options& how = {}) noexcept;
TILEWISE_API status try_rotary_embedding(const tensor& x, const const_tensor& cosines,
                                         const const_tensor& sines, const rotary_options& how = {}) noexcept;
TILEWISE_API status try_rotary_tables(const tensor& cosines, const tensor& sines,
                                      const rotary_options& how = {}) noexcept;

}  // namespace tilewise

#endif

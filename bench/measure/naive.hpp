// The comparison's opponent: attention in three steps with the whole score matrix of a head in memory, as
// a competent person writes it.
//
//   S = scale * Q K^T; S = softmax(S) by rows, -inf above the diagonal if causal; O = S V.
//
// Heads follow one another and share one matrix. Every thread takes its share of the rows through all three
// steps, so that no thread waits for another and each works on memory that it touched first. The division
// by the row's sum is done on O, where it is cheapest. Products are OpenBLAS's sgemm or loops of our own.

#ifndef TILEWISE_MEASURE_NAIVE_HPP
#define TILEWISE_MEASURE_NAIVE_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tilewise/isa.hpp>

#include "aligned_buffer.hpp"

namespace tilewise::measure {

/// Contiguous tensors [batch, heads, tokens, head_dim]; query i sees the keys j <= i + n_keys - n_queries if
/// causal.
struct naive_shape {
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t n_queries = 0;
    std::int64_t n_keys = 0;
    std::int64_t head_dim = 0;
    std::int64_t value_dim = 0;
    bool causal = false;
    float scale = 1.0F;
};

/// What computes the two matrix products.
enum class naive_products : std::uint8_t { openblas, loops };

/// Whether this build has OpenBLAS.
[[nodiscard]] bool has_openblas();

/// "OpenBLAS 0.3.21 (SkylakeX kernels)" or "own loops (avx512)".
[[nodiscard]] std::string naive_products_name(naive_products products, isa which);

/// The faster on a small problem with this head_dim, by a short race: OpenBLAS may have been told to use
/// kernels of an old processor, and an opponent should not be slower than it need be.
[[nodiscard]] naive_products faster_naive_products(isa which, std::int64_t head_dim);

/// Bytes of scratch that a run allocates.
[[nodiscard]] std::size_t naive_scratch_bytes(const naive_shape& shape, naive_products products, isa which,
                                              int threads);

class naive_attention {
public:
    /// Allocates all buffers and writes to every page of them, so that no run pays for fresh memory.
    /// Throws std::bad_alloc if they cannot be had.
    naive_attention(const naive_shape& shape, naive_products products, isa which, int threads);

    void run(const float* q, const float* k, const float* v, float* out);

    [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_; }

private:
    void attend_rows(const float* q, const float* k, const float* v, float* out, std::int64_t first,
                     std::int64_t rows, float* packed);

    naive_shape shape_;
    naive_products products_;
    isa isa_;
    int threads_;
    std::int64_t score_stride_;
    std::int64_t packed_floats_;  ///< per thread
    std::size_t scratch_bytes_;
    aligned_buffer scores_;
    aligned_buffer packed_;
    std::vector<float> inverse_sums_;
};

}  // namespace tilewise::measure

#endif

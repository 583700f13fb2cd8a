// The loops that are compiled once per instruction set: those that measure the machine, and the vector
// loops of the naive opponent. Plain functions on plain pointers; no code crosses this line.

#ifndef TILEWISE_MEASURE_KERNEL_TABLE_HPP
#define TILEWISE_MEASURE_KERNEL_TABLE_HPP

#include <cstddef>
#include <cstdint>

namespace tilewise::measure {

struct machine_kernels {
    /// Runs `rounds` rounds of independent chains of multiply-adds, enough of them to hide the latency.
    void (*multiply_add_chains)(std::int64_t rounds);
    /// Floating-point operations of one round.
    int flops_per_round;
    /// The same in f64.
    void (*f64_chains)(std::int64_t rounds);
    int f64_flops_per_round;
    /// The sum of `count` values, a multiple of 64, at an address that is a multiple of 64: from front to
    /// back, the fastest way to read what is in a cache.
    float (*sum)(const float* values, std::int64_t count);
    /// The same for a multiple of 512, from eight places at once with prefetches: processors follow each of
    /// several streams, and stop at the end of a page, so that this reads memory up to twice as fast.
    float (*sum_streams)(const float* values, std::int64_t count);
};

struct pair_kernels {
    /// The same with products of bf16 pairs.
    void (*chains)(std::int64_t rounds);
    int flops_per_round;
};

/// Loops of the naive opponent on one block of query rows of one head. Scores have `n_keys` columns and
/// rows `score_stride` apart; all other rows are contiguous.
struct naive_kernels {
    /// scores[rows, n_keys] = scale * q[rows, head_dim] * k[n_keys, head_dim]^T. `packed` is scratch of
    /// packed_floats(head_dim).
    void (*scores)(const float* q, const float* k, float* scores, std::int64_t score_stride,
                   std::int64_t rows, std::int64_t n_keys, std::int64_t head_dim, float scale, float* packed);
    /// One row of scores becomes exp(score - max); those from `visible` on are masked with -inf first.
    /// `columns`, a multiple of 16, counts the padding that rounds n_keys up. Returns the sum.
    float (*softmax)(float* scores, std::int64_t visible, std::int64_t columns);
    /// out[rows, value_dim] = weights[rows, n_keys] * v[n_keys, value_dim].
    void (*values)(const float* weights, const float* v, float* out, std::int64_t score_stride,
                   std::int64_t rows, std::int64_t n_keys, std::int64_t value_dim);
    std::int64_t (*packed_floats)(std::int64_t head_dim);
};

}  // namespace tilewise::measure

#endif

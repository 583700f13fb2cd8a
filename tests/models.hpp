// Attention written out independently of the library: in float64, as the ordinary float32 program, and in
// the library's arithmetic but with one maximum for the whole row.

#ifndef TILEWISE_TESTS_MODELS_HPP
#define TILEWISE_TESTS_MODELS_HPP

#include <cstdint>
#include <functional>
#include <vector>

#include "cases.hpp"

namespace tilewise_tests {

/// One row of results.
struct row {
    std::vector<float> out;
    float lse;
};

/// The keys that query token i sees: 0 .. visible_keys - 1.
std::int64_t visible_keys(const attention_case& which, std::int64_t i);

/// The textbook's softmax(scale Q K^T) V in float64, and the size of the errors that rounding the scores
/// and the results to float32 must be expected to make, in units of that rounding:
///   for out  mean |v| + sum_j p_j |t_j| |v_j - out|,   for lse  1 + |lse| + sum_j p_j |t_j|.
struct exact_row {
    std::vector<double> out;
    std::vector<double> out_sensitivity;
    double lse;
    double lse_sensitivity;
};

/// For query row (b, h, i). The case must state its scale.
exact_row float64_row(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                      std::int64_t i);

/// The same formula as an ordinary float32 program has it: dot products and sums over keys each in one
/// chain, of fused multiply-adds or of multiplications and additions; scores times the scale; minus their
/// maximum; the C library's expf and logf; weights divided by their sum.
enum class accumulation : std::uint8_t { fused, unfused };
row ordinary_row(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                 std::int64_t i, accumulation how);

/// The library's arithmetic with one integer maximum for the whole row, found before any weight is
/// computed: no running maximum, and nothing is ever rescaled. Only for ordinary scores.
row two_pass_row(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                 std::int64_t i);

/// Calls visit(b, h, i) for each query row.
void for_each_row(const attention_case& which,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit);

}  // namespace tilewise_tests

#endif

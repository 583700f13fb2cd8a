// The scalar functions of the oracle (contract.hpp), in f32 and f64; arithmetic::fastest is for f32. The
// kernels have their own.

#ifndef TILEWISE_SRC_REFERENCE_MATH_HPP
#define TILEWISE_SRC_REFERENCE_MATH_HPP

#include <cstdint>
#include <limits>

#include <tilewise/attention.hpp>

namespace tilewise::reference {

template <class Real>
inline constexpr Real infinity = std::numeric_limits<Real>::infinity();

/// Step 1: the dot product of a key and a query.
float dot(arithmetic how, const float* key, const float* query, std::int64_t head_dim);
double dot(arithmetic how, const double* key, const double* query, std::int64_t head_dim);

/// 2^k for an integer k; +0 below `lowest`.
float power_of_two(float k, float lowest);
double power_of_two(double k, double lowest);

/// s plus the products of two pairs, as arithmetic::fastest has them (contract.hpp).
float add_products(float s, float first_a, float first_b, float second_a, float second_b);

/// Step 3: the weight of one score; for arithmetic::fastest, not yet rounded to bf16.
float weight(arithmetic how, float t, float c, float chunk_maximum);
double weight(arithmetic how, double t, double c, double chunk_maximum);

/// o += p v for one key.
void add_value(const float* value, float p, std::int64_t value_dim, float* o);
void add_value(const double* value, double p, std::int64_t value_dim, double* o);

/// The same for a pair of keys; null values are 0.
void add_value_pair(const float* first_value, float first_p, const float* second_value, float second_p,
                    std::int64_t value_dim, float* o);

/// Step 4: row = fma(row, a, chunk * b).
void fold_sums(float* row, const float* chunk, std::int64_t count, float a, float b);
void fold_sums(double* row, const double* chunk, std::int64_t count, double a, double b);

float log2_of(float value);
double log2_of(double value);
float tanh_of(float value);
double tanh_of(double value);

/// The one NaN that is written.
float canonical(float value);
double canonical(double value);

}  // namespace tilewise::reference

#endif

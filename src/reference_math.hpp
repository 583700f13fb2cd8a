// The scalar functions of the oracle (contract.hpp), in f32 and f64. The kernels have their own.

#ifndef TILEWISE_SRC_REFERENCE_MATH_HPP
#define TILEWISE_SRC_REFERENCE_MATH_HPP

#include <cstdint>
#include <limits>

namespace tilewise::reference {

template <class Real>
inline constexpr Real infinity = std::numeric_limits<Real>::infinity();

/// Step 1: the dot product of a key and a query.
float dot(const float* key, const float* query, std::int64_t head_dim);
double dot(const double* key, const double* query, std::int64_t head_dim);

/// 2^k for an integer k; +0 below `lowest`.
float power_of_two(float k, float lowest);
double power_of_two(double k, double lowest);

/// Step 3: the weight of one score.
float weight(float t, float c, float chunk_maximum);
double weight(double t, double c, double chunk_maximum);

/// o += p v for one key.
void add_value(const float* value, float p, std::int64_t value_dim, float* o);
void add_value(const double* value, double p, std::int64_t value_dim, double* o);

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

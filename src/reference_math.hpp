// The scalar functions of the oracle (contract.hpp). The kernels have their own.

#ifndef TILEWISE_SRC_REFERENCE_MATH_HPP
#define TILEWISE_SRC_REFERENCE_MATH_HPP

#include <cstdint>
#include <limits>

namespace tilewise::reference {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Step 1: the dot product of a key and a query.
float dot(const float* key, const float* query, std::int64_t head_dim);

/// 2^k for an integer k; +0 below `lowest`.
float power_of_two(float k, float lowest);

/// Step 3: the weight of one score.
float weight(float t, float c, float chunk_maximum);

/// o += p v for one key.
void add_value(const float* value, float p, std::int64_t value_dim, float* o);

/// Step 4: row = fma(row, a, chunk * b).
void fold_sums(float* row, const float* chunk, std::int64_t count, float a, float b);

float log2_of(float value);
float tanh_of(float value);

/// The one NaN that is written.
float canonical(float value);

}  // namespace tilewise::reference

#endif

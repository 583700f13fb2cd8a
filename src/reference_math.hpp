// The scalar functions of the oracle (contract.hpp). The kernels have their own.

#ifndef TILEWISE_SRC_REFERENCE_MATH_HPP
#define TILEWISE_SRC_REFERENCE_MATH_HPP

#include <cstdint>
#include <limits>

#include <tilewise/attention.hpp>

namespace tilewise::reference {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Step 1: the dot product of a key and a query.
float dot(const float* key, const float* query, std::int64_t head_dim);

/// 2^k for an integer k; +0 below `lowest`.
float power_of_two(float k, float lowest);

/// The same by pairs, with the products of arithmetic::fastest.
float dot_of_pairs(const float* key, const float* query, std::int64_t head_dim);

/// s plus the products of two pairs, as arithmetic::fastest has them (contract.hpp).
float add_products(float s, float first_a, float first_b, float second_a, float second_b);

/// Step 3: the weight of one score; not yet rounded to bf16 where it is to be.
float weight(arithmetic how, float t, float c, float chunk_maximum);

/// o += p v for one key.
void add_value(const float* value, float p, std::int64_t value_dim, float* o);

/// The same for a pair of keys; null values are 0.
void add_value_pair(const float* first_value, float first_p, const float* second_value, float second_p,
                    std::int64_t value_dim, float* o);

/// Step 4: row = fma(row, a, chunk * b).
void fold_sums(float* row, const float* chunk, std::int64_t count, float a, float b);

float log2_of(float value);
float tanh_of(float value);

/// The one NaN that is written.
float canonical(float value);

}  // namespace tilewise::reference

#endif

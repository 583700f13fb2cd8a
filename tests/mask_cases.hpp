// Random masks and score modifiers in any combination, with the memory that they point to, and what they
// mean in plain words: a model in float64 that knows nothing of tiles or intervals.

#ifndef TILEWISE_TESTS_MASK_CASES_HPP
#define TILEWISE_TESTS_MASK_CASES_HPP

#include <cstdint>
#include <string>
#include <tilewise/attention.hpp>
#include <vector>

#include "cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

/// Options that point to their own memory; moving keeps that in place.
struct mask_case {
    attention_case sizes;
    tilewise::options how;
    std::string names;  ///< of the options that are set

    std::vector<std::int64_t> documents;
    std::vector<std::int64_t> key_lengths;
    std::vector<std::int32_t> first_keys;
    std::vector<std::int32_t> last_keys;
    std::vector<std::uint8_t> mask;
    std::vector<std::uint8_t> blocks;
    std::vector<float> bias;                ///< the values, as they are stored
    std::vector<std::uint16_t> short_bias;  ///< their bits, if that is in 16-bit types
    std::vector<float> slopes;
    std::vector<float> sinks;

    mask_case() = default;
    mask_case(mask_case&&) = default;
    mask_case& operator=(mask_case&&) = default;
    mask_case(const mask_case&) = delete;
    mask_case& operator=(const mask_case&) = delete;
    ~mask_case() = default;
};

/// Each option is set with a probability of about a third.
mask_case random_masks(random_source& random, const attention_case& sizes);

/// The score function of the cases that have one: part of a score, from its query's and its key's position,
/// that is exact in f32; -inf for some.
float score_change(std::int64_t query_position, std::int64_t key);

/// Whether query i of head h of batch entry b sees key j.
bool sees(const mask_case& of, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

/// The textbook's attention in float64, over the keys that `sees` says.
struct float64_results {
    std::vector<double> out;  ///< [batch, heads, queries, value_dim]
    std::vector<double> lse;
    std::vector<double> largest;  ///< score
    std::vector<double> entropy;
    std::vector<double> weights;  ///< [batch, heads, queries, keys]
};
float64_results model(const mask_case& of, const inputs& given);

}  // namespace tilewise_tests

#endif

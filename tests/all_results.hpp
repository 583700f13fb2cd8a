// Everything that a call can write, in memory of its own, and comparisons of all of it at once.

#ifndef TILEWISE_TESTS_ALL_RESULTS_HPP
#define TILEWISE_TESTS_ALL_RESULTS_HPP

#include <array>
#include <cstdint>
#include <string>
#include <tilewise/attention.hpp>
#include <vector>

#include "cases.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

struct all_results {
    std::vector<std::int64_t> rows;  ///< whose weights are wanted
    owned_tensor out;
    owned_tensor lse;
    owned_tensor row_maximum;
    owned_tensor entropy;
    owned_tensor key_weights;
    owned_tensor weights;

    /// Memory full of canaries, all in one layout.
    all_results(const attention_case& sizes, const std::vector<std::int64_t>& chosen,
                const layout& where = dense());

    /// The options, with all results asked for.
    [[nodiscard]] tilewise::options asked_for(tilewise::options how) const;

    struct part {
        const char* name;
        const owned_tensor* tensor;
    };
    [[nodiscard]] std::array<part, 6> parts() const;
};

/// Calls tilewise::attention, and asks for all results.
void attend(const inputs& given, const tilewise::options& how, const all_results& into);
all_results attend(const attention_case& sizes, const inputs& given, const tilewise::options& how,
                   const std::vector<std::int64_t>& chosen);

/// Empty if all results have the same bits; else the first difference, in words.
std::string first_difference(const all_results& got, const all_results& want);

/// Empty if no gap, or no memory at all, was written to; else where, in words.
std::string damage_to_gaps(const all_results& of);
std::string damage(const all_results& of);

/// 0, step, 2 step, ... below the end.
std::vector<std::int64_t> every(std::int64_t step, std::int64_t end);

}  // namespace tilewise_tests

#endif

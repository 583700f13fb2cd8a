// One case of attention: its description, its inputs, its results, and the check that the tiled
// computation gives the bits of the naive one.

#ifndef TILEWISE_TESTS_CASES_HPP
#define TILEWISE_TESTS_CASES_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "support.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

struct attention_case {
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t queries = 1;
    std::int64_t keys = 1;
    std::int64_t key_dim = 64;
    std::int64_t value_dim = 64;
    tilewise::causal causal = tilewise::causal::none;
    std::optional<float> scale = std::nullopt;
    std::array<std::size_t, 4> layouts = {};  ///< of q, k, v, and out with lse: indices into all_layouts()
    std::uint64_t seed = 1;
    std::array<tilewise::element_type, 4> types = {};  ///< of q, k, v and out
    tilewise::arithmetic arithmetic = tilewise::arithmetic::exact;

    /// Multiply-adds of one computation, were nothing masked.
    [[nodiscard]] std::int64_t work() const { return batch * heads * queries * keys * (key_dim + value_dim); }
};

/// The type of lse and other results.
tilewise::element_type result_type(const attention_case& which);

/// With f64 for q, k, v and out.
attention_case in_f64(attention_case which);

std::string show(const attention_case& which);
std::string show(tilewise::causal which);
std::string show(tilewise::arithmetic which);

/// Whether the active instruction set has arithmetic::fastest, and what it is for: q, k and v in bf16.
bool has_fastest();
inline constexpr std::array<tilewise::element_type, 4> bf16_types = {
    tilewise::element_type::bf16, tilewise::element_type::bf16, tilewise::element_type::bf16,
    tilewise::element_type::f32};

inline constexpr std::array float_types = {tilewise::element_type::f32, tilewise::element_type::f16,
                                           tilewise::element_type::bf16};

inline constexpr std::array all_causal = {tilewise::causal::none, tilewise::causal::bottom_right,
                                          tilewise::causal::top_left};

struct inputs {
    owned_tensor q;
    owned_tensor k;
    owned_tensor v;
};

/// Inputs of the case's shape and layouts with normal random values from its seed.
inputs make_inputs(const attention_case& which);

struct results {
    owned_tensor out;
    owned_tensor lse;
};

/// Output memory of the case's shape and type, full of canaries.
results make_results(const attention_case& which, const layout& where = dense());

/// Empty if they have the same bits; else the first difference, in words.
std::string first_difference(const results& got, const results& want);

/// How the tiled computation is run: this must not change one bit.
struct setting {
    int threads = 1;
    std::size_t scratch_budget = 0;
};
/// Threads 1, 2, 3 and 7, each with the default scratch budget and the smallest.
std::span<const setting> all_settings();

results naive(const attention_case& which, const inputs& given);
results tiled(const attention_case& which, const inputs& given, const setting& how = {});

/// Checks that the tiled computation gives the naive one's bits with each setting, and that nothing is
/// written beside the outputs.
void check_exact(const attention_case& which, const inputs& given, std::span<const setting> settings);

/// The same with settings chosen by the active instruction set's speed and the case's number, so that each
/// one comes up often.
void check_exact(const attention_case& which, const inputs& given, std::size_t number);

}  // namespace tilewise_tests

#endif

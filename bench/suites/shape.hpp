// What one benchmark runs: every axis of the suites in one struct, and its name.

#ifndef TILEWISE_SUITES_SHAPE_HPP
#define TILEWISE_SUITES_SHAPE_HPP

#include <cstddef>
#include <cstdint>
#include <string>

#include <tilewise/attention.hpp>
#include <tilewise/element_type.hpp>
#include <tilewise/isa.hpp>

#include "stored.hpp"

namespace tilewise::suites {

using measure::bytes_of;
using measure::name_of;

/// How the rows of a head lie in memory: dense; beside those of the other heads; or one head of many, far
/// apart.
enum class layout : std::uint8_t { bhsd, bshd, bshd_32_heads, packed_qkv, sliced_4kib_rows };

/// What is masked, or done to the scores.
enum class masking : std::uint8_t {
    no_mask,
    causal,
    window_1024,    ///< causal
    documents,      ///< eight of them, causal
    chunks_1024,    ///< attention_chunk, causal
    all_true_mask,  ///< a boolean tensor that hides nothing
    all_true_bits,  ///< the same, a bit for each key
    block_mask,     ///< every second block of 128 x 128
    bias,
    soft_cap,
    alibi,
    sinks
};

struct shape {
    tilewise::isa isa{};
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t kv_heads = 1;
    std::int64_t queries = 0;
    std::int64_t keys = 0;
    std::int64_t head_dim = 0;
    std::int64_t value_dim = 0;
    element_type q_type = element_type::f32;
    element_type kv_type = element_type::f32;
    masking mask = masking::no_mask;
    layout rows = layout::bhsd;
    int threads = 1;
    bool values_in_keys = false;  ///< V is the first value_dim elements of K's rows, as DeepSeek's MLA has it

    std::size_t scratch_budget = 0;
    tilewise::arithmetic arithmetic = tilewise::arithmetic::exact;

    bool operator==(const shape&) const = default;
};

[[nodiscard]] const char* name_of(layout which);
[[nodiscard]] const char* name_of(masking which);

/// "MHA", "GQA:4" or "MQA:8".
[[nodiscard]] std::string heads_name(const shape& s);

/// "bf16", or "bf16:fastest" with that arithmetic: the storage type of keys, in names.
[[nodiscard]] std::string type_name(const shape& s);

/// "threads:2".
[[nodiscard]] std::string threads_name(const shape& s);

}  // namespace tilewise::suites

#endif

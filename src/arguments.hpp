// The checks that every entry point makes before anything is written, and the problem that they establish.

#ifndef TILEWISE_SRC_ARGUMENTS_HPP
#define TILEWISE_SRC_ARGUMENTS_HPP

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tilewise/attention.hpp>

#include "contract.hpp"
#include "kernels/interface.hpp"

namespace tilewise {

/// The checked description of a call; sizes are consistent and none is negative.
struct problem {
    std::int64_t batch;          ///< sequences
    std::int64_t batch_entries;  ///< of the tensors: 1 if sequences are packed
    std::int64_t query_tokens;   ///< of a batch entry
    std::int64_t heads;
    std::int64_t kv_heads;
    std::int64_t group;    ///< query heads per key head; 1 if there are no heads
    std::int64_t queries;  ///< of the longest sequence
    std::int64_t keys;     ///< of the longest sequence
    std::int64_t head_dim;
    std::int64_t value_dim;
    kernels::row_layout k_layout;
    kernels::row_layout v_layout;
    element_type real;  ///< what is computed in: f32 or f64
    element_type q_type;
    element_type out_type;
    tilewise::arithmetic arithmetic;  ///< that is asked for
    kernels::interval_rules intervals;
    kernels::tensor_masks masks;
    kernels::score_rules scores;
    const float* sinks;
    kernels::chosen_rows chosen;
    bool has_results;                            ///< something is written, or a score function called
    bool sum_keys;                               ///< sums of weights per key are wanted
    std::span<const std::int64_t> key_lengths;   ///< empty: all keys count
    std::span<const std::int64_t> query_starts;  ///< of packed sequences; empty: batch entries
    std::span<const std::int64_t> key_starts;
    std::optional<std::int64_t> query_position;   ///< none: the last query sees the last key, or
    bool is_top_left;                             ///< the first one the first
    std::int64_t key_position;                    ///< of a sequence's first key, unless there are
    std::span<const std::int64_t> key_positions;  ///< those of each sequence
    const std::int32_t* pages;  ///< page numbers [sequences, pages of a sequence]; null: none
    std::int64_t page_keys;
    std::int64_t sequence_stride;  ///< of pages
    std::int64_t table_stride;
};

/// Where the tokens of a sequence are. Sequences are the batch entries, or parts of one packed batch entry.
struct sequence {
    std::int64_t batch_entry;
    std::int64_t first_query;
    std::int64_t queries;
    std::int64_t first_key;
    std::int64_t keys;
    std::int64_t key_position;    ///< of its first key
    std::int64_t query_position;  ///< of its first query among its keys
};
sequence sequence_of(const problem& p, std::int64_t index);

/// The keys of a sequence with its padding.
std::int64_t padded_keys(const problem& p, std::int64_t index);

/// The most chunks that the keys of a sequence lie in.
std::int64_t count_chunks(const problem& p);

/// Whether all sequences have as many queries and keys.
bool are_sequences_alike(const problem& p);

/// Scratch memory is counted in 64 bits.
[[nodiscard]] bool require_countable_head_dim(std::string_view name, std::int64_t head_dim);

/// Scores are counted in 63 bits, and so are the rows of a key head's group.
[[nodiscard]] bool require_countable(const problem& p);

/// Errors name the argument, what was given and what is allowed.
[[nodiscard]] bool check_arguments(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                                   const tensor& out, const options& how, problem& p);

}  // namespace tilewise

#endif

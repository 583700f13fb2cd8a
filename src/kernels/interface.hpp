// What crosses the line between src/ and src/kernels/: plain structs, and one table of functions for each
// instruction set. Code never crosses it, so nothing here has a body.

#ifndef TILEWISE_SRC_KERNELS_INTERFACE_HPP
#define TILEWISE_SRC_KERNELS_INTERFACE_HPP

#include <cstddef>
#include <cstdint>

#include <tilewise/element_type.hpp>
#include <tilewise/score_tile.hpp>

namespace tilewise::kernels {

/// Where the elements of a key head's tokens are, [tokens, head_dim], strides in elements.
struct row_layout {
    std::int64_t token_stride;
    std::int64_t element_stride;
    element_type type;
    std::int64_t scale_token_stride;
    std::int64_t scale_element_stride;
    std::int64_t page_stride;  ///< where keys are in pages
    std::int64_t scale_page_stride;
};

/// The tokens of a group of query heads, [tokens, heads of the group, head_dim], strides in elements.
struct group_in {
    const void* data;
    std::int64_t token_stride;
    std::int64_t head_stride;
    std::int64_t element_stride;
};
struct group_out {
    void* data;
    std::int64_t token_stride;
    std::int64_t head_stride;
    std::int64_t element_stride;
};

/// A caller's value for each (batch entry, query head, query token, key); strides in elements, 0 where it
/// does not vary. data is null where there is none.
struct grid {
    const void* data;
    std::int64_t batch_stride;
    std::int64_t head_stride;
    std::int64_t query_stride;
    std::int64_t key_stride;
};

enum class mask_storage : unsigned char { bytes, bits };

/// Masks that are intervals of keys per query row (they compose by intersection), at key positions.
/// A query token at position p sees key j if all of these hold.
struct interval_rules {
    bool causal;                ///< j <= p, or j < prefix
    std::int64_t window_left;   ///< j >= p - window_left, or j < prefix; INT64_MAX: open
    std::int64_t window_right;  ///< j <= p + window_right, or j < prefix; INT64_MAX: open
    std::int64_t prefix;
    std::int64_t attention_chunk;  ///< p and j in the same block of so many positions; 0: no such rule
    const std::int64_t*
        documents;  ///< p and j between the same two of these ascending boundaries; null: no rule
    std::int64_t document_count;  ///< boundaries
    grid first_key;               ///< std::int32_t per query row: j >= it
    grid last_key;                ///< std::int32_t per query row: j < it
};

/// Masks that are read as tensors.
struct tensor_masks {
    grid visible;  ///< bytes (not 0) or bits (1, least significant first): the key is visible
    mask_storage storage;
    grid blocks;  ///< bytes: a block of queries sees a block of keys
    std::int64_t block_queries;
    std::int64_t block_keys;
};

/// What is done to a score after the dot product, in this order (contract step 2), before it is masked.
struct score_rules {
    // Numbers of the arithmetic, whose values binary64 holds.
    bool multiply;  ///< by scale
    double scale;
    double soft_cap;         ///< 0: none; replaces the multiplication
    double soft_cap_factor;  ///< scale / soft_cap, rounded
    grid bias;
    element_type bias_type;
    const float* alibi_slopes;                                         ///< per query head; null: none
    void (*function)(void* context, const score_tile& tile) noexcept;  ///< the caller's; null: none
    void* function_context;
    double exponent;
};

/// Query tokens whose weights are wanted, ascending; null: none.
struct chosen_rows {
    const std::int64_t* tokens;
    std::int64_t count;
    std::int64_t columns;  ///< of the result; those beyond a sequence's keys are 0
};

/// Extents, layouts and options that all tasks of a call share.
struct shape {
    std::int64_t group;  ///< query heads per key head
    std::int64_t max_keys;
    std::int64_t head_dim;  ///< of queries and keys
    std::int64_t value_dim;
    std::int64_t state_floats;  ///< of a row's state: 3 + value_dim
    row_layout k_layout;
    row_layout v_layout;
    element_type q_type;
    element_type out_type;
    bool copy_k;  ///< chunks are copied into scratch, instead of read in place
    bool copy_v;
    std::int64_t page_keys;     ///< keys of a page; 0: keys are not in pages
    std::int64_t table_stride;  ///< of page numbers
    std::int64_t block_rows;    ///< most query rows of a task
    interval_rules intervals;
    tensor_masks masks;
    score_rules scores;
    const float* sinks;  ///< per query head: a score that no key has; null: none
    chosen_rows chosen;
    bool sum_keys;  ///< sums of weights per key are wanted
};

/// One task: rows first_row .. first_row + rows - 1 of one sequence and key head. Row r is query head
/// r % group of the group, at query token r / group: heads are stacked as rows, so that they share the
/// tiles of keys and values.
struct task {
    group_in q;
    const void* k;              ///< [keys, head_dim], k_layout
    const void* v;              ///< [keys, value_dim], v_layout
    const std::int32_t* pages;  ///< which page of k and v has which keys; null: keys are not in pages
    const float* k_scales;      ///< null for types without
    const float* v_scales;
    bool pages_looked_up;  ///< these keys' and values' memory pages have been read from shortly before
    group_out out;
    // One real number per row each; data is null where it is not wanted.
    group_out lse;
    group_out row_maximum;
    group_out entropy;
    group_out state;           ///< two values per row: m, and l
    group_out weights;         ///< [chosen rows, heads of the group, keys]
    std::int64_t first_token;  ///< what number query token 0 has among chosen_rows::tokens
    std::int64_t batch;
    std::int64_t first_head;  ///< query head of the group's first
    std::int64_t keys;        ///< of this sequence; none beyond is read
    std::int64_t first_key;   ///< position of the first of them
    std::int64_t begin;       ///< only keys at positions begin .. end - 1 are attended to
    std::int64_t end;
    void* states;                 ///< row states (see table) of the rows from first_row on, or null
    std::int64_t query_position;  ///< of query token 0 among the keys
    std::int64_t first_row;
    std::int64_t rows;
};

/// The sums of the weights of keys first_key .. of one chunk over all query tokens of a task, which holds all
/// rows of its sequence and key head, and whose `state` has been written.
struct key_task {
    task rows;
    std::int64_t first_key;
    std::int64_t columns;  ///< sums to write; 0 for keys that the sequence does not have
    group_out sums;        ///< [keys, heads of the group]
};

/// The kernels of one instruction set and one arithmetic, whose real numbers, `real` in the kernels, are f32
/// or f64: states and all results but an f16 or bf16 output are of these.
struct table {
    const char* name;
    int panel_rows;      ///< query rows of a full panel
    int value_multiple;  ///< V can be read in place only if value_dim is a multiple of this
    /// Bytes of scratch (64-byte aligned) that one task of this shape needs.
    std::size_t (*scratch_bytes)(const shape&);
    /// Runs one task. Reads only elements that the task describes, allocates nothing, throws nothing.
    void (*forward)(const shape&, const task&, std::byte* scratch);

    // Row states: of each row m, l, its largest score, and value_dim sums o; [rows][shape::state_floats].
    // With them, a task's keys can come in parts.

    /// The state before the first key.
    void (*start_states)(const shape&, const task&, std::byte* scratch);
    /// Goes on from the states over the keys begin .. end - 1, whose chunks are whole, or end with the keys.
    void (*advance)(const shape&, const task&, std::byte* scratch);
    /// The states of each chunk by itself, [chunks from that of `begin` on][rows].
    void (*chunk_states)(const shape&, const task&, std::byte* scratch);
    /// Folds the states of successive chunks into those of their rows.
    void (*fold_states)(const shape&, std::int64_t rows, std::int64_t chunks, const void* chunk_states,
                        void* states);
    /// Writes all results of the task from the states.
    void (*finish)(const shape&, const task&, std::byte* scratch);
    /// Runs one key task after all tasks of its sequence and key head, in the same scratch.
    void (*sum_key_weights)(const shape&, const key_task&, std::byte* scratch);
};

}  // namespace tilewise::kernels

#endif

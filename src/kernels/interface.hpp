// What crosses the line between src/ and src/kernels/: plain structs, and one table of functions for each
// instruction set. Code never crosses it, so nothing here has a body.

#ifndef TILEWISE_SRC_KERNELS_INTERFACE_HPP
#define TILEWISE_SRC_KERNELS_INTERFACE_HPP

#include <cstddef>
#include <cstdint>

namespace tilewise::kernels {

/// Where the elements of a key head's tokens are, [tokens, head_dim], strides in elements.
struct row_layout {
    std::int64_t token_stride;
    std::int64_t element_stride;
};

/// The tokens of a group of query heads, [tokens, heads of the group, head_dim], strides in elements.
struct group_in {
    const float* data;
    std::int64_t token_stride;
    std::int64_t head_stride;
    std::int64_t element_stride;
};
struct group_out {
    float* data;
    std::int64_t token_stride;
    std::int64_t head_stride;
    std::int64_t element_stride;
};

/// Extents, layouts and options that all tasks of a call share.
struct shape {
    std::int64_t group;  ///< query heads per key head
    std::int64_t keys;
    std::int64_t head_dim;  ///< of queries and keys
    std::int64_t value_dim;
    row_layout k_layout;
    row_layout v_layout;
    bool copy_k;  ///< chunks are copied into scratch, instead of read in place
    bool copy_v;
    std::int64_t block_rows;  ///< most query rows of a task
    bool causal;              ///< query token i sees key j if j <= i + causal_offset
    std::int64_t causal_offset;
    bool multiply_scores;  ///< contract step 2
    float scale;
    float exponent;
};

/// One task: rows first_row .. first_row + rows - 1 of one batch entry and key head. Row r is query head
/// r % group of the group, at query token r / group: heads are stacked as rows, so that they share the
/// tiles of keys and values.
struct task {
    group_in q;
    const float* k;  ///< [keys, head_dim], k_layout
    const float* v;  ///< [keys, value_dim], v_layout
    group_out out;
    group_out lse;  ///< head_dim 1; data is null when not wanted
    std::int64_t first_row;
    std::int64_t rows;
};

/// The kernels of one instruction set.
struct table {
    const char* name;
    int panel_rows;      ///< query rows of a full panel
    int value_multiple;  ///< V can be read in place only if value_dim is a multiple of this
    /// Bytes of scratch (64-byte aligned) that one task of this shape needs.
    std::size_t (*scratch_bytes)(const shape&);
    /// Runs one task. Reads only elements that the task describes, allocates nothing, throws nothing.
    void (*forward)(const shape&, const task&, std::byte* scratch);
};

}  // namespace tilewise::kernels

#endif

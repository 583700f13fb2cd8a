// What an attention_stream holds between calls, and the steps that change it. stream.cpp says which and when;
// stream_tasks.cpp runs the kernels; stream_bytes.cpp saves and restores.

#ifndef TILEWISE_SRC_STREAM_STATE_HPP
#define TILEWISE_SRC_STREAM_STATE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <tilewise/stream.hpp>

#include "arguments.hpp"
#include "contract.hpp"
#include "heap_array.hpp"
#include "plan.hpp"

namespace tilewise::detail {

struct stream_state {
    const_tensor q;
    options how;
    problem sizes{};  ///< of a call without keys
    std::optional<std::int64_t> total_keys;
    std::int64_t keys = 0;  ///< so far
    bool finished = false;
    heap_array<float> rows;  ///< [batch, kv_heads, query tokens x group, 3 + value_dim]; see kernels::table
    heap_array<float> carried_k;  ///< [batch, kv_heads, 128, head_dim]
    heap_array<float> carried_v;  ///< [batch, kv_heads, 128, value_dim]

    /// The position of the next key.
    [[nodiscard]] std::int64_t position() const { return sizes.key_position + keys; }
    /// That of the first key that is carried, and how many are.
    [[nodiscard]] std::int64_t carried_position() const {
        return std::max(position() / contract::chunk_keys * contract::chunk_keys, sizes.key_position);
    }
    [[nodiscard]] std::int64_t carried() const { return position() - carried_position(); }
    /// Floats that one row's state has.
    [[nodiscard]] std::int64_t state_floats() const { return 3 + sizes.value_dim; }
    /// Rows of one key head.
    [[nodiscard]] std::int64_t head_rows() const { return sizes.queries * sizes.group; }
};

/// Keys and values of successive positions.
struct key_piece {
    const_tensor k;
    const_tensor v;
    std::int64_t position;
};

/// The first `keys` carried keys, as a piece.
key_piece carried_piece(const stream_state& s, std::int64_t keys);

struct stream_results {
    tensor out;
    tensor lse;
    tensor row_maximum;
};

[[nodiscard]] bool check_stream(const const_tensor& q, const stream_sizes& sizes, const options& how,
                                problem& p);
[[nodiscard]] bool check_piece(const stream_state& s, const const_tensor& k, const const_tensor& v);
[[nodiscard]] bool check_stream_results(const stream_state& s, const stream_results& into);

/// A piece, and how its keys are attended to.
struct planned_piece {
    key_piece keys;
    problem sizes;
    work_plan work;
};
[[nodiscard]] bool plan_piece(const stream_state& s, const key_piece& keys, planned_piece& planned);

/// Scratch memory that serves several pieces, one after the other: the workspace if there is one, else owned.
[[nodiscard]] bool find_scratch(const stream_state& s, std::initializer_list<const planned_piece*> pieces,
                                scratch_array& owned, std::byte*& scratch);

// On all rows: the state before the first key; the keys of a piece, whose chunks are whole or end with the
// last key of all; the results.
void start_rows(stream_state& s, const planned_piece& none, std::byte* scratch);
void advance_rows(stream_state& s, const planned_piece& piece, std::byte* scratch);
void finish_rows(stream_state& s, const planned_piece& none, const stream_results& into, std::byte* scratch);

std::size_t saved_bytes(const stream_state& s);
[[nodiscard]] bool save(const stream_state& s, std::span<std::byte> to);
[[nodiscard]] bool restore(stream_state& s, std::span<const std::byte> from);

}  // namespace tilewise::detail

#endif

// The plan: how a call is cut into tasks, and what that takes. It decides speed, never bits.

#ifndef TILEWISE_SRC_PLAN_HPP
#define TILEWISE_SRC_PLAN_HPP

#include <cstddef>
#include <cstdint>
#include <span>
#include <tilewise/attention.hpp>

#include "arguments.hpp"
#include "kernels/interface.hpp"

namespace tilewise {

/// A task is a block of query rows of one sequence and key head. Rows of a key head are numbered as in
/// kernels::task.
struct row_block {
    std::int64_t sequence;
    std::int64_t kv_head;
    std::int64_t first_row;
    std::int64_t rows;
};

/// One of the sequences that are not alike, in the list of them, heaviest first.
struct listed_sequence {
    std::int64_t number;
    std::int64_t first_block;  ///< blocks (of one key head) of the sequences before it in the list
    double weight;
};

struct work_plan {
    plan summary;
    const kernels::table* kernels;
    kernels::shape shape;
    /// Groups of the key heads of a sequence. The heads of a group go over the keys together, some chunks
    /// each in turn: see gains_by_turns() in plan.cpp. 0: each head by itself.
    std::int64_t head_groups;
    std::int64_t blocks_per_head;                ///< if all sequences are alike;
    std::span<const listed_sequence> sequences;  ///< see list_sequences, otherwise
    // In the scratch, behind that of the threads.
    std::size_t list_offset;
    std::size_t row_state_offset;  ///< [batch entries, heads, query tokens, 2]
    /// For each block, the states of its chunks, if keys are cut into parts, and of its rows; also if heads
    /// take turns.
    std::size_t chunk_state_offset;
};

/// Chunks of keys that a head goes over before it is another one's turn.
inline constexpr std::int64_t chunks_of_turn = 8;

/// The arithmetic that a call gets on an instruction set.
arithmetic arithmetic_for(const problem& p, isa which);

/// Refuses a workspace that is too small. `turns`: whether key heads may take turns.
[[nodiscard]] bool make_plan(const problem& p, const options& how, bool turns, work_plan& w);

/// Lists the sequences in the call's scratch, if they are not alike. Must come before block_number.
void list_sequences(const problem& p, std::byte* scratch, work_plan& w);

/// Block number `index`, 0 .. summary.tasks / summary.key_parts - 1, heaviest first.
row_block block_number(const work_plan& w, const problem& p, std::int64_t index);

/// States of each query row in the scratch: of the chunks, where keys are cut into parts, and of the row.
std::int64_t states_per_row(const work_plan& w, const problem& p);

/// The part of a workspace that begins at a multiple of 64.
std::span<std::byte> aligned_part(std::span<std::byte> workspace);

}  // namespace tilewise

#endif

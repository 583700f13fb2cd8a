// The plan: how a call is cut into tasks, and what that takes. It decides speed, never bits.

#ifndef TILEWISE_SRC_PLAN_HPP
#define TILEWISE_SRC_PLAN_HPP

#include <cstdint>
#include <tilewise/attention.hpp>
#include <vector>

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

struct work_plan {
    plan summary;
    kernels::shape shape;
    std::int64_t blocks_per_head;   ///< if all sequences are alike;
    std::vector<row_block> blocks;  ///< all tasks, otherwise
    std::size_t
        chunk_state_offset;  ///< in the scratch: for each block, the states of its chunks, and of its rows
    std::size_t row_state_offset;  ///< in the scratch: [batch entries, heads, query tokens, 2] floats
};

work_plan make_plan(const problem& p, const options& how);

/// Block number `index`, 0 .. summary.tasks / summary.key_parts - 1, heaviest first.
row_block block_number(const work_plan& w, const problem& p, std::int64_t index);

}  // namespace tilewise

#endif

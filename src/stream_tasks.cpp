// The kernels' part of an attention_stream: the same tasks as in attention.cpp, but between them the rows'
// states are in the stream.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "float_environment.hpp"
#include "kernels/interface.hpp"
#include "stream_state.hpp"
#include "threads.hpp"
#include "token_places.hpp"

namespace tilewise::detail {

namespace {

struct call {
    stream_state* stream;
    const planned_piece* piece;
    stream_results into;
    const kernels::table* kernels;
    std::byte* scratch;

    [[nodiscard]] const work_plan& work() const { return piece->work; }
    [[nodiscard]] std::byte* scratch_of(int thread) const {
        return scratch + work().summary.scratch_bytes_per_thread * static_cast<std::size_t>(thread);
    }
};

call make_call(stream_state& s, const planned_piece& piece, const stream_results& into, std::byte* scratch) {
    return {&s, &piece, into, piece.work.kernels, scratch};
}

kernels::task task_of(const call& c, const row_block& block) {
    const stream_state& s = *c.stream;
    const key_piece& keys = c.piece->keys;
    const std::int64_t entry = block.sequence;
    const std::int64_t head = block.kv_head * s.sizes.group;
    kernels::task task{};
    task.q = {token_of(s.q, entry, head, 0), s.q.strides[2], s.q.strides[1], s.q.strides[3]};
    task.k = token_of(keys.k, entry, block.kv_head, 0);
    task.v = token_of(keys.v, entry, block.kv_head, 0);
    task.k_scales = scales_of_token(keys.k, entry, block.kv_head, 0);
    task.v_scales = scales_of_token(keys.v, entry, block.kv_head, 0);
    task.out = group_of(c.into.out, entry, head, 0);
    task.lse = group_of(c.into.lse, entry, head, 0);
    task.row_maximum = group_of(c.into.row_maximum, entry, head, 0);
    task.batch = entry;
    task.first_head = head;
    task.keys = keys.k.tokens();
    task.first_key = task.begin = keys.position;
    task.end = keys.position + task.keys;
    task.query_position = *s.sizes.query_position;
    task.first_row = block.first_row;
    task.rows = block.rows;
    const std::int64_t row = (entry * s.sizes.kv_heads + block.kv_head) * s.head_rows() + block.first_row;
    task.states = c.stream->rows.data() + row * s.state_floats();
    return task;
}

kernels::task task_number(const call& c, std::int64_t index) {
    return task_of(c, block_number(c.work(), c.piece->sizes, index));
}

void run_start(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const float_environment standard;
    c.kernels->start_states(c.work().shape, task_number(c, index), c.scratch_of(thread));
}

void run_advance(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const float_environment standard;
    c.kernels->advance(c.work().shape, task_number(c, index), c.scratch_of(thread));
}

void run_finish(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const float_environment standard;
    c.kernels->finish(c.work().shape, task_number(c, index), c.scratch_of(thread));
}

/// The states of the chunks of block number `index`.
float* chunk_states_of(const call& c, std::int64_t index) {
    const std::int64_t states = c.work().summary.block_rows * states_per_row(c.work(), c.piece->sizes);
    return reinterpret_cast<float*>(c.scratch + c.work().chunk_state_offset) +
           index * states * c.work().shape.state_floats;
}

/// Where keys are cut into parts: the chunks of one part of a block.
void run_part(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const std::int64_t parts = c.work().summary.key_parts;
    const std::int64_t chunks = count_chunks(c.piece->sizes);
    const std::int64_t first = index % parts * chunks / parts;
    const std::int64_t last = (index % parts + 1) * chunks / parts;
    const std::int64_t start = c.piece->keys.position / contract::chunk_keys * contract::chunk_keys;
    kernels::task task = task_number(c, index / parts);
    task.begin = start + first * contract::chunk_keys;
    task.end = start + last * contract::chunk_keys;
    task.states = chunk_states_of(c, index / parts) + first * task.rows * c.work().shape.state_floats;
    const float_environment standard;
    c.kernels->chunk_states(c.work().shape, task, c.scratch_of(thread));
}

/// And all parts of a block, folded into its rows.
void run_fold(void* context, std::int64_t index, int /*thread*/) {
    const call& c = *static_cast<const call*>(context);
    const kernels::task task = task_number(c, index);
    const float_environment standard;
    c.kernels->fold_states(c.work().shape, task.rows, count_chunks(c.piece->sizes), chunk_states_of(c, index),
                           task.states);
}

/// Runs a task for each block of rows.
void run_blocks(call& c, void (*body)(void* context, std::int64_t index, int thread)) {
    const plan& plan = c.work().summary;
    run_tasks(plan.threads, plan.tasks / plan.key_parts, body, &c, c.stream->how.parallel_for);
}

}  // namespace

key_piece carried_piece(const stream_state& s, std::int64_t keys) {
    const auto view = [&](const heap_array<float>& memory, std::int64_t dim) {
        const std::int64_t head = contract::chunk_keys * dim;
        return const_tensor(memory.data(), element_type::f32, {s.sizes.batch, s.sizes.kv_heads, keys, dim},
                            {s.sizes.kv_heads * head, head, dim, 1});
    };
    return {view(s.carried_k, s.sizes.head_dim), view(s.carried_v, s.sizes.value_dim), s.carried_position()};
}

bool plan_piece(const stream_state& s, const key_piece& keys, planned_piece& planned) {
    planned.keys = keys;
    planned.sizes = s.sizes;
    planned.sizes.arithmetic = arithmetic::exact;  // what is carried from piece to piece is f32
    planned.sizes.keys = keys.k.tokens();
    planned.sizes.key_position = keys.position;
    planned.sizes.k_layout = layout_of(keys.k);
    planned.sizes.v_layout = layout_of(keys.v);
    return make_plan(planned.sizes, s.how, false, planned.work);
}

bool find_scratch(const stream_state& s, std::initializer_list<const planned_piece*> pieces,
                  scratch_array& owned, std::byte*& scratch) {
    scratch = aligned_part(s.how.workspace).data();
    if (s.how.workspace.data() != nullptr) { return true; }
    std::size_t bytes = 0;
    for (const planned_piece* const piece : pieces) {
        bytes = std::max(bytes, piece->work.summary.scratch_bytes);
    }
    if (!owned.allocate(bytes)) { return false; }
    scratch = owned.data();
    return true;
}

void start_rows(stream_state& s, const planned_piece& none, std::byte* scratch) {
    call c = make_call(s, none, {}, scratch);
    run_blocks(c, run_start);
}

void advance_rows(stream_state& s, const planned_piece& piece, std::byte* scratch) {
    if (piece.sizes.keys == 0) { return; }
    call c = make_call(s, piece, {}, scratch);
    const plan& plan = piece.work.summary;
    if (plan.key_parts == 1) { return run_blocks(c, run_advance); }
    run_tasks(plan.threads, plan.tasks, run_part, &c, s.how.parallel_for);
    run_blocks(c, run_fold);
}

void finish_rows(stream_state& s, const planned_piece& none, const stream_results& into, std::byte* scratch) {
    call c = make_call(s, none, into, scratch);
    run_blocks(c, run_finish);
}

}  // namespace tilewise::detail

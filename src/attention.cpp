// The entry point: check the arguments, plan, run the tasks on the kernels of the active instruction set.

#include <tilewise/attention.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "arguments.hpp"
#include "float_environment.hpp"
#include "heap_array.hpp"
#include "kernels/interface.hpp"
#include "plan.hpp"
#include "threads.hpp"
#include "token_places.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

struct call {
    const_tensor q;
    const_tensor k;
    const_tensor v;
    tensor out;
    tensor lse;
    extra_results extra;
    tensor state;  ///< m and l of each query row, where they are needed once more
    const problem* sizes;
    const work_plan* work;
    const kernels::table* kernels;
    std::byte* scratch;
};

/// The place of an element of a result.
std::byte* element_of(const tensor& view, std::int64_t batch, std::int64_t head, std::int64_t token,
                      std::int64_t i) {
    return static_cast<std::byte*>(token_of(view, batch, head, token)) +
           i * view.strides[3] * block_of(view.type).bytes;
}

kernels::task task_of(const call& c, const row_block& block) {
    const sequence of = sequence_of(*c.sizes, block.sequence);
    const std::int64_t entry = of.batch_entry;
    const std::int64_t head = block.kv_head * c.sizes->group;
    kernels::task task{};
    task.q = {token_of(c.q, entry, head, of.first_query), c.q.strides[2], c.q.strides[1], c.q.strides[3]};
    const std::int64_t key_entry = c.sizes->pages == nullptr ? entry : 0;
    task.k = token_of(c.k, key_entry, block.kv_head, of.first_key);
    task.v = token_of(c.v, key_entry, block.kv_head, of.first_key);
    task.k_scales = scales_of_token(c.k, key_entry, block.kv_head, of.first_key);
    task.v_scales = scales_of_token(c.v, key_entry, block.kv_head, of.first_key);
    if (c.sizes->pages != nullptr) {
        task.pages = c.sizes->pages + block.sequence * c.sizes->sequence_stride;
    }
    task.out = group_of(c.out, entry, head, of.first_query);
    task.lse = group_of(c.lse, entry, head, of.first_query);
    task.row_maximum = group_of(c.extra.row_maximum, entry, head, of.first_query);
    task.entropy = group_of(c.extra.entropy, entry, head, of.first_query);
    task.state = group_of(c.state, entry, head, of.first_query);
    task.weights = group_of(c.extra.weights, entry, head, 0);
    task.first_token = of.first_query;
    task.batch = block.sequence;
    task.first_head = head;
    task.keys = of.keys;
    task.first_key = of.key_position;
    task.begin = task.first_key;
    task.end = task.first_key + of.keys;
    task.query_position = of.query_position;
    task.first_row = block.first_row;
    task.rows = block.rows;
    return task;
}

std::byte* scratch_of(const call& c, int thread) {
    return c.scratch + c.work->summary.scratch_bytes_per_thread * static_cast<std::size_t>(thread);
}

void run_task(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const float_environment standard;
    c.kernels->forward(c.work->shape, task_of(c, block_number(*c.work, *c.sizes, index)),
                       scratch_of(c, thread));
}

std::int64_t state_bytes(const call& c) { return c.work->shape.state_floats * block_of(c.sizes->real).bytes; }

/// The states of the chunks of block number `index`, if keys are cut into parts; those of its rows follow.
std::byte* chunk_states_of(const call& c, std::int64_t index) {
    const std::int64_t states = c.work->summary.block_rows * states_per_row(*c.work, *c.sizes);
    return c.scratch + c.work->chunk_state_offset + index * states * state_bytes(c);
}

/// Where keys are cut into parts: the chunks of one part of a block.
void run_part(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const std::int64_t parts = c.work->summary.key_parts;
    const std::int64_t block = index / parts;
    const std::int64_t chunks = count_chunks(*c.sizes);
    const std::int64_t first = index % parts * chunks / parts;
    const std::int64_t last = (index % parts + 1) * chunks / parts;
    kernels::task task = task_of(c, block_number(*c.work, *c.sizes, block));
    const std::int64_t start = task.first_key / contract::chunk_keys * contract::chunk_keys;
    task.begin = start + first * contract::chunk_keys;
    task.end = start + last * contract::chunk_keys;
    task.states = chunk_states_of(c, block) + first * task.rows * state_bytes(c);
    const float_environment standard;
    c.kernels->chunk_states(c.work->shape, task, scratch_of(c, thread));
}

/// And all parts of a block together.
void run_fold(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    kernels::task task = task_of(c, block_number(*c.work, *c.sizes, index));
    const std::int64_t chunks = count_chunks(*c.sizes);
    const std::byte* const parts = chunk_states_of(c, index);
    task.states = chunk_states_of(c, index) + chunks * task.rows * state_bytes(c);
    const float_environment standard;
    c.kernels->start_states(c.work->shape, task, scratch_of(c, thread));
    c.kernels->fold_states(c.work->shape, task.rows, chunks, parts, task.states);
    c.kernels->finish(c.work->shape, task, scratch_of(c, thread));
}

/// Whether what begins at one address probably has its memory pages in common with what begins at the other.
bool are_on_one_page(const void* a, const void* b) {
    constexpr std::uintptr_t page_bytes = 4096;
    return reinterpret_cast<std::uintptr_t>(a) / page_bytes ==
           reinterpret_cast<std::uintptr_t>(b) / page_bytes;
}

/// Where key heads take turns, each of one block: those of a group, from the first key to the last.
void run_group(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const kernels::shape& shape = c.work->shape;
    const std::int64_t heads = c.sizes->kv_heads;
    const std::int64_t groups = c.work->head_groups;
    const std::int64_t first_block = index / groups * heads + index % groups * heads / groups;
    const std::int64_t last_block = index / groups * heads + (index % groups + 1) * heads / groups;
    const float_environment standard;
    const auto for_each_task = [&](auto run) {
        kernels::task before{};
        for (std::int64_t block = first_block; block < last_block; ++block) {
            kernels::task task = task_of(c, block_number(*c.work, *c.sizes, block));
            task.states = chunk_states_of(c, block);
            task.pages_looked_up = are_on_one_page(task.k, before.k) && are_on_one_page(task.v, before.v);
            before = task;
            run(task);
        }
    };
    for_each_task([&](kernels::task& task) { c.kernels->start_states(shape, task, scratch_of(c, thread)); });
    for (std::int64_t chunk = 0; chunk < count_chunks(*c.sizes); chunk += chunks_of_turn) {
        for_each_task([&](kernels::task& task) {
            const std::int64_t start = task.first_key / contract::chunk_keys + chunk;
            task.begin = std::max(task.first_key, start * contract::chunk_keys);
            task.end = std::min(task.end, (start + chunks_of_turn) * contract::chunk_keys);
            if (task.begin < task.end) { c.kernels->advance(shape, task, scratch_of(c, thread)); }
        });
    }
    for_each_task([&](kernels::task& task) { c.kernels->finish(shape, task, scratch_of(c, thread)); });
}

/// Tasks are numbered by chunk, then key head, then sequence.
void run_key_task(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const problem& p = *c.sizes;
    const std::int64_t head = index / count_chunks(p);
    const sequence of = sequence_of(p, head / p.kv_heads);
    const std::int64_t start =
        (of.key_position / contract::chunk_keys + index % count_chunks(p)) * contract::chunk_keys;
    const std::int64_t first = std::max(start, of.key_position) - of.key_position;  // key token
    const std::int64_t columns = padded_keys(p, head / p.kv_heads);
    if (first >= columns) { return; }
    const kernels::key_task task{task_of(c, {head / p.kv_heads, head % p.kv_heads, 0, of.queries * p.group}),
                                 of.key_position + first,
                                 std::min(start + contract::chunk_keys - of.key_position, columns) - first,
                                 {element_of(c.extra.key_weights, of.batch_entry, head % p.kv_heads * p.group,
                                             0, of.first_key + first),
                                  c.extra.key_weights.strides[3], c.extra.key_weights.strides[1], 0}};
    const float_environment standard;
    c.kernels->sum_key_weights(c.work->shape, task, scratch_of(c, thread));
}

/// Where they are given, with strides to compute with.
extra_results sound(extra_results extra) {
    extra.row_maximum = with_sound_strides(extra.row_maximum);
    extra.entropy = with_sound_strides(extra.entropy);
    extra.key_weights = with_sound_strides(extra.key_weights);
    extra.weights = with_sound_strides(extra.weights);
    return extra;
}

/// Without query rows there are no tasks, but sums over them are 0.
void clear_key_weights(const problem& p, const tensor& sums) {
    if (!p.sum_keys || is_empty(sums)) { return; }
    const auto bytes = static_cast<std::size_t>(block_of(sums.type).bytes);
    for (std::int64_t index = 0; index < p.batch; ++index) {
        const sequence of = sequence_of(p, index);
        for (std::int64_t h = 0; h < p.heads; ++h) {
            for (std::int64_t j = 0; j < padded_keys(p, index); ++j) {
                std::memset(element_of(sums, of.batch_entry, h, 0, of.first_key + j), 0, bytes);
            }
        }
    }
}

/// A view of the scratch that holds the state of the query rows.
tensor row_states(const problem& p, const work_plan& work, std::byte* scratch) {
    if (!p.sum_keys) { return {}; }
    const std::int64_t head = p.query_tokens * 2;
    return tensor(scratch + work.row_state_offset, p.real, {p.batch_entries, p.heads, p.query_tokens, 2},
                  {p.heads * head, head, 2, 1});
}

void run_all(call& c, const parallel_for& host) {
    const problem& p = *c.sizes;
    const plan& plan = c.work->summary;
    const auto run = [&](std::int64_t count, void (*body)(void*, std::int64_t, int)) {
        run_tasks(plan.threads, count, body, &c, host);
    };
    if (c.work->head_groups > 0) {
        run(plan.tasks / p.kv_heads * c.work->head_groups, run_group);
    } else if (plan.key_parts == 1) {
        run(plan.tasks, run_task);
    } else {
        run(plan.tasks, run_part);
        run(plan.tasks / plan.key_parts, run_fold);
    }
    if (p.sum_keys) { run(p.batch * p.kv_heads * count_chunks(p), run_key_task); }
}

}  // namespace

status try_plan_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                          const tensor& out, const options& how, plan& result) noexcept {
    const float_environment standard;
    problem sizes{};
    work_plan work;
    if (!check_arguments(q, k, v, out, how, sizes) || !make_plan(sizes, how, true, work)) {
        return status_of(false);
    }
    result = work.summary;
    return {};
}

status try_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                     const options& how) noexcept {
    const float_environment standard;  // the default scale is computed, too
    problem sizes{};
    work_plan work;
    if (!check_arguments(q, k, v, out, how, sizes) || !make_plan(sizes, how, true, work)) {
        return status_of(false);
    }
    if (work.summary.tasks == 0) {
        clear_key_weights(sizes, how.extra.key_weights);
        return {};
    }
    scratch_array owned;
    if (how.workspace.data() == nullptr && !owned.allocate(work.summary.scratch_bytes)) {
        return status_of(false);
    }
    std::byte* const scratch =
        how.workspace.data() == nullptr ? owned.data() : aligned_part(how.workspace).data();
    list_sequences(sizes, scratch, work);
    call c{with_sound_strides(q),
           with_sound_strides(k),
           with_sound_strides(v),
           with_sound_strides(out),
           with_sound_strides(how.lse),
           sound(how.extra),
           row_states(sizes, work, scratch),
           &sizes,
           &work,
           work.kernels,
           scratch};
    run_all(c, how.parallel_for);
    return {};
}

plan plan_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                    const options& how) {
    plan result;
    raise_unless(try_plan_attention(q, k, v, out, how, result));
    return result;
}

void attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
               const options& how) {
    raise_unless(try_attention(q, k, v, out, how));
}

}  // namespace tilewise

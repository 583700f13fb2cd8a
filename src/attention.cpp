// The entry point: check the arguments, plan, run the tasks on the kernels of the active instruction set.

#include <tilewise/attention.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "arguments.hpp"
#include "float_environment.hpp"
#include "kernels.hpp"
#include "plan.hpp"
#include "threads.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

constexpr std::align_val_t scratch_alignment{64};

struct scratch_deleter {
    void operator()(std::byte* memory) const { ::operator delete(memory, scratch_alignment); }
};

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

template <class Void>
Void* token_of(const basic_tensor<Void>& view, std::int64_t batch, std::int64_t head, std::int64_t token) {
    if (view.data == nullptr) { return nullptr; }
    using byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    const std::int64_t offset = batch * view.strides[0] + head * view.strides[1] + token * view.strides[2];
    const element_block block = block_of(view.type);
    return static_cast<byte*>(view.data) + offset / block.elements * block.bytes;
}

const float* scales_of_token(const const_tensor& view, std::int64_t batch, std::int64_t head,
                             std::int64_t token) {
    if (view.scales == nullptr) { return nullptr; }
    return view.scales + batch * view.scale_strides[0] + head * view.scale_strides[1] +
           token * view.scale_strides[2];
}

/// The same of a result that is always f32.
float* f32_of(const tensor& view, std::int64_t batch, std::int64_t head, std::int64_t token) {
    return static_cast<float*>(token_of(view, batch, head, token));
}

kernels::group_out group_of(const tensor& view, std::int64_t batch, std::int64_t head, std::int64_t token) {
    return {token_of(view, batch, head, token), view.strides[2], view.strides[1], view.strides[3]};
}

kernels::task task_of(const call& c, const row_block& block) {
    const sequence of = sequence_of(*c.sizes, block.sequence);
    const std::int64_t entry = of.batch_entry;
    const std::int64_t head = block.kv_head * c.sizes->group;
    kernels::task task{};
    task.q = {token_of(c.q, entry, head, of.first_query), c.q.strides[2], c.q.strides[1], c.q.strides[3]};
    task.k = token_of(c.k, entry, block.kv_head, of.first_key);
    task.v = token_of(c.v, entry, block.kv_head, of.first_key);
    task.k_scales = scales_of_token(c.k, entry, block.kv_head, of.first_key);
    task.v_scales = scales_of_token(c.v, entry, block.kv_head, of.first_key);
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
    c.kernels->forward(c.work->shape, task_of(c, block_of_task(*c.work, *c.sizes, index)),
                       scratch_of(c, thread));
}

std::int64_t chunks_of(const problem& p) {
    return (p.keys + contract::chunk_keys - 1) / contract::chunk_keys;
}

/// Tasks are numbered by chunk, then key head, then sequence.
void run_key_task(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const problem& p = *c.sizes;
    const std::int64_t first_key = index % chunks_of(p) * contract::chunk_keys;
    const std::int64_t head = index / chunks_of(p);
    const sequence of = sequence_of(p, head / p.kv_heads);
    const std::int64_t columns = padded_keys(p, head / p.kv_heads);
    if (first_key >= columns) { return; }
    const kernels::key_task task{
        task_of(c, {head / p.kv_heads, head % p.kv_heads, 0, of.queries * p.group}),
        first_key,
        std::min<std::int64_t>(contract::chunk_keys, columns - first_key),
        {f32_of(c.extra.key_weights, of.batch_entry, head % p.kv_heads * p.group, 0) +
             (of.first_key + first_key) * c.extra.key_weights.strides[3],
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
    for (std::int64_t index = 0; index < p.batch; ++index) {
        const sequence of = sequence_of(p, index);
        for (std::int64_t h = 0; h < p.heads; ++h) {
            float* const first = f32_of(sums, of.batch_entry, h, 0);
            for (std::int64_t j = 0; j < padded_keys(p, index); ++j) {
                first[(of.first_key + j) * sums.strides[3]] = 0.0F;
            }
        }
    }
}

/// A view of the scratch that holds the state of the query rows.
tensor row_states(const problem& p, const work_plan& work, std::byte* scratch) {
    if (!p.sum_keys) { return {}; }
    const std::int64_t head = p.query_tokens * 2;
    return tensor(scratch + work.row_state_offset, element_type::f32,
                  {p.batch_entries, p.heads, p.query_tokens, 2}, {p.heads * head, head, 2, 1});
}

}  // namespace

plan plan_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                    const options& how) {
    const float_environment standard;
    return make_plan(check_arguments(q, k, v, out, how), how).summary;
}

void attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
               const options& how) {
    const float_environment standard;  // the default scale is computed, too
    const problem sizes = check_arguments(q, k, v, out, how);
    const work_plan work = make_plan(sizes, how);
    if (work.summary.tasks == 0) {
        clear_key_weights(sizes, how.extra.key_weights);
        return;
    }
    const std::unique_ptr<std::byte, scratch_deleter> scratch(
        static_cast<std::byte*>(::operator new(work.summary.scratch_bytes, scratch_alignment)));
    call c{with_sound_strides(q),
           with_sound_strides(k),
           with_sound_strides(v),
           with_sound_strides(out),
           with_sound_strides(how.lse),
           sound(how.extra),
           row_states(sizes, work, scratch.get()),
           &sizes,
           &work,
           &kernels_of(work.summary.isa),
           scratch.get()};
    run_tasks(work.summary.threads, work.summary.tasks, run_task, &c);
    if (sizes.sum_keys) {
        run_tasks(work.summary.threads, sizes.batch * sizes.kv_heads * chunks_of(sizes), run_key_task, &c);
    }
}

}  // namespace tilewise

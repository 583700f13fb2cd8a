// The entry point: check the arguments, plan, run the tasks on the kernels of the active instruction set.

#include <tilewise/attention.hpp>

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

kernels::group_out group_of(const tensor& view, std::int64_t batch, std::int64_t head, std::int64_t token) {
    return {token_of(view, batch, head, token), view.strides[2], view.strides[1], view.strides[3]};
}

void run_task(void* context, std::int64_t index, int thread) {
    const call& c = *static_cast<const call*>(context);
    const row_block block = block_of_task(*c.work, *c.sizes, index);
    const sequence of = sequence_of(*c.sizes, block.sequence);
    const std::int64_t head = block.kv_head * c.sizes->group;
    const kernels::task task{
        {token_of(c.q, of.batch_entry, head, of.first_query), c.q.strides[2], c.q.strides[1], c.q.strides[3]},
        token_of(c.k, of.batch_entry, block.kv_head, of.first_key),
        token_of(c.v, of.batch_entry, block.kv_head, of.first_key),
        scales_of_token(c.k, of.batch_entry, block.kv_head, of.first_key),
        scales_of_token(c.v, of.batch_entry, block.kv_head, of.first_key),
        group_of(c.out, of.batch_entry, head, of.first_query),
        group_of(c.lse, of.batch_entry, head, of.first_query),
        block.sequence,
        head,
        of.keys,
        of.query_position,
        block.first_row,
        block.rows};
    const float_environment standard;
    c.kernels->forward(
        c.work->shape, task,
        c.scratch + c.work->summary.scratch_bytes_per_thread * static_cast<std::size_t>(thread));
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
    if (work.summary.tasks == 0) { return; }
    const std::unique_ptr<std::byte, scratch_deleter> scratch(
        static_cast<std::byte*>(::operator new(work.summary.scratch_bytes, scratch_alignment)));
    call c{q, k, v, out, how.lse, &sizes, &work, &kernels_of(work.summary.isa), scratch.get()};
    run_tasks(work.summary.threads, work.summary.tasks, run_task, &c);
}

}  // namespace tilewise

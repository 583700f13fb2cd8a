#include "plan.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "cpu.hpp"
#include "kernels.hpp"
#include "threads.hpp"

namespace tilewise {

namespace {

/// The most query rows of a block. They share each tile of keys and values while it is in the second-level
/// cache: the more, the less often all keys and values come from memory, or are copied.
constexpr std::int64_t most_block_rows = 576;

/// The most scratch per thread by default. Half the second-level cache is left for the tiles themselves.
constexpr std::size_t most_scratch = std::size_t{512} * 1024;

std::size_t preferred_scratch() { return std::min(most_scratch, second_level_cache_bytes() / 2); }

/// Tasks per thread below which blocks are made smaller, so that no thread idles at the end for long.
constexpr std::int64_t tasks_per_thread = 8;

/// Work worth waking one more thread for: tens of microseconds on one core.
constexpr double flops_per_thread = 4e6;

/// The sum of max(0, f(x)) over `count` successive integers x, for f linear with slope -1, 0 or 1 and the
/// given values at both ends.
double positive_sum(double count, double at_first, double at_last) {
    if (count <= 0) { return 0; }
    if (at_first >= 0 && at_last >= 0) { return count * (at_first + at_last) / 2; }
    const double largest = std::max({at_first, at_last, 0.0});
    return largest * (largest + 1) / 2;
}

/// Pairs of a query token and a key that it sees, in one head of a sequence, as far as the causal mask, the
/// window and the prefix say; other masks are not counted. In binary64: exact up to 2^53 pairs.
double visible_pairs(const problem& p, const sequence& of) {
    const kernels::interval_rules& rules = p.intervals;
    const auto keys = static_cast<double>(of.keys);
    const auto prefix = std::min(static_cast<double>(rules.prefix), keys);
    const auto left = static_cast<double>(rules.window_left);
    const double right = rules.causal ? 0.0 : static_cast<double>(rules.window_right);
    const auto begin = static_cast<double>(of.query_position);
    const double end = begin + static_cast<double>(of.queries);
    // A query at position x sees the prefix, and keys from max(prefix, x - left) to min(keys, x + right + 1).
    const auto beyond_prefix = [&](double x) {
        return std::min(keys, x + right + 1) - std::max(prefix, x - left);
    };
    double turns[] = {std::clamp(keys - right - 1, begin, end), std::clamp(prefix + left, begin, end)};
    std::sort(std::begin(turns), std::end(turns));
    double pairs = static_cast<double>(of.queries) * prefix;
    double from = begin;
    for (const double to : {turns[0], turns[1], end}) {
        pairs += positive_sum(to - from, beyond_prefix(from), beyond_prefix(to - 1));
        from = to;
    }
    return pairs;
}

double visible_pairs(const problem& p) {
    if (are_sequences_alike(p)) { return static_cast<double>(p.batch) * visible_pairs(p, sequence_of(p, 0)); }
    double pairs = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) { pairs += visible_pairs(p, sequence_of(p, b)); }
    return pairs;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

int useful_threads(double flops, std::int64_t tasks, const options& how) {
    const int allowed = threads_for(how.threads);
    const double worth = std::max(1.0, flops / flops_per_thread);
    const auto enough = static_cast<std::int64_t>(std::min(worth, 1e6));
    return static_cast<int>(std::max<std::int64_t>(1, std::min({std::int64_t{allowed}, tasks, enough})));
}

/// Whether rows can be read where they are: f32, dense, and not so far apart that a chunk of them fights for
/// the same cache sets and pages.
bool lies_well(const kernels::row_layout& layout, std::int64_t dim) {
    return layout.type == element_type::f32 && layout.element_stride == 1 && layout.token_stride >= dim &&
           layout.token_stride <= dim + dim / 2;
}

kernels::shape shape_of(const problem& p, const kernels::table& kernels, std::int64_t block_rows) {
    const bool copy_k = !lies_well(p.k_layout, p.head_dim);
    const bool copy_v = !lies_well(p.v_layout, p.value_dim) || p.value_dim % kernels.value_multiple != 0;
    return {p.group,  p.keys,     p.head_dim, p.value_dim, p.k_layout, p.v_layout,
            p.q_type, p.out_type, copy_k,     copy_v,      block_rows, p.intervals,
            p.masks,  p.scores,   p.sinks,    p.chosen,    p.sum_keys};
}

/// The most rows of a block, in whole panels, whose scratch is within the budget; at least one panel.
std::int64_t rows_within_budget(const problem& p, const kernels::table& kernels, std::size_t budget) {
    std::int64_t rows = most_block_rows / kernels.panel_rows * kernels.panel_rows;
    while (rows > kernels.panel_rows && kernels.scratch_bytes(shape_of(p, kernels, rows)) > budget) {
        rows -= kernels.panel_rows;
    }
    return rows;
}

/// All blocks of rows of sequences that are not alike, heaviest first. The weight of a block is its rows
/// times the keys up to its last row's position, or all keys.
std::vector<row_block> list_blocks(const problem& p, std::int64_t block_rows) {
    std::vector<std::pair<double, row_block>> weighed;
    for (std::int64_t index = 0; index < p.batch; ++index) {
        const sequence of = sequence_of(p, index);
        const std::int64_t rows = of.queries * p.group;
        for (std::int64_t first = 0; first < rows; first += block_rows) {
            const std::int64_t count = std::min(block_rows, rows - first);
            const std::int64_t position = of.query_position + (first + count - 1) / p.group;
            const std::int64_t keys =
                p.intervals.causal ? std::clamp<std::int64_t>(position + 1, 0, of.keys) : of.keys;
            const double weight =
                static_cast<double>(count) * static_cast<double>(keys + contract::chunk_keys);
            for (std::int64_t head = 0; head < p.kv_heads; ++head) {
                weighed.push_back({weight, {index, head, first, count}});
            }
        }
    }
    std::stable_sort(weighed.begin(), weighed.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<row_block> blocks;
    blocks.reserve(weighed.size());
    for (const auto& [weight, block] : weighed) { blocks.push_back(block); }
    return blocks;
}

/// The final maximum and sum of each query row, where weights are summed over them.
std::size_t row_state_bytes(const problem& p) {
    if (!p.sum_keys) { return 0; }
    std::size_t bytes = 2 * sizeof(float);
    for (const std::int64_t factor : {p.batch_entries, p.heads, p.query_tokens}) {
        if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(factor), &bytes)) {
            throw std::bad_alloc();
        }
    }
    return bytes;
}

std::int64_t count_tasks(const problem& p, std::int64_t block_rows) {
    if (are_sequences_alike(p)) { return p.batch * p.kv_heads * divide_up(p.queries * p.group, block_rows); }
    std::int64_t blocks = 0;
    for (std::int64_t index = 0; index < p.batch; ++index) {
        blocks += divide_up(sequence_of(p, index).queries * p.group, block_rows);
    }
    return blocks * p.kv_heads;
}

}  // namespace

work_plan make_plan(const problem& p, const options& how) {
    work_plan w{};
    w.summary.isa = active_isa();
    const kernels::table& kernels = kernels_of(w.summary.isa);
    w.summary.chunk_keys = contract::chunk_keys;
    w.summary.panel_rows = kernels.panel_rows;
    w.summary.visible_scores = visible_pairs(p) * static_cast<double>(p.heads);
    w.summary.flops = 2.0 * static_cast<double>(p.head_dim + p.value_dim) * w.summary.visible_scores;
    // Products of extents are counted in 63 bits where none of them is 0.
    if (p.batch == 0 || p.heads == 0 || p.queries == 0) { return w; }
    const std::int64_t rows = p.queries * p.group;

    std::int64_t block =
        rows_within_budget(p, kernels, how.scratch_budget == 0 ? preferred_scratch() : how.scratch_budget);
    const int threads = useful_threads(w.summary.flops, count_tasks(p, kernels.panel_rows), how);
    while (threads > 1 && block > kernels.panel_rows && count_tasks(p, block) < tasks_per_thread * threads) {
        block -= kernels.panel_rows;
    }
    block = std::min(block, rows);
    w.shape = shape_of(p, kernels, block);
    w.blocks_per_head = divide_up(rows, block);
    w.summary.block_rows = block;
    w.summary.tasks = count_tasks(p, block);
    if (!are_sequences_alike(p)) { w.blocks = list_blocks(p, block); }
    w.summary.threads = static_cast<int>(std::clamp<std::int64_t>(w.summary.tasks, 1, threads));
    w.summary.scratch_bytes_per_thread = kernels.scratch_bytes(w.shape);
    w.summary.scratch_bytes =
        w.summary.scratch_bytes_per_thread * static_cast<std::size_t>(w.summary.threads);
    w.row_state_offset = w.summary.scratch_bytes;
    w.summary.scratch_bytes += row_state_bytes(p);
    return w;
}

row_block block_of_task(const work_plan& w, const problem& p, std::int64_t index) {
    if (!w.blocks.empty()) { return w.blocks[static_cast<std::size_t>(index)]; }
    // Later rows see more keys under a causal mask, so the last block of every head comes first.
    const std::int64_t key_heads = p.batch * p.kv_heads;
    const std::int64_t block = w.blocks_per_head - 1 - index / key_heads;
    const std::int64_t head = index % key_heads;
    const std::int64_t first = block * w.summary.block_rows;
    return {head / p.kv_heads, head % p.kv_heads, first,
            std::min(w.summary.block_rows, p.queries * p.group - first)};
}

}  // namespace tilewise

#include "plan.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <new>

#include "cpu.hpp"
#include "heap_array.hpp"
#include "kernels.hpp"
#include "threads.hpp"
#include "views.hpp"

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

/// Tasks per thread below which even the keys of a block of query rows are cut into parts.
constexpr std::int64_t key_tasks_per_thread = 4;

/// Bytes from one key of a head to its next from which on it matters that other heads' lie between them.
constexpr double far_apart = 1024;

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
    const auto first_key = static_cast<double>(of.key_position);
    const double prefix = std::clamp(static_cast<double>(rules.prefix) - first_key, 0.0, keys);
    const auto left = static_cast<double>(rules.window_left);
    const double right = rules.causal ? 0.0 : static_cast<double>(rules.window_right);
    const double begin =
        static_cast<double>(of.query_position) - first_key;  // of query and key positions alike
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

double row_bytes(element_type type, std::int64_t dim) {
    const element_block block = block_of(type);
    return static_cast<double>(dim) * static_cast<double>(block.bytes) / static_cast<double>(block.elements);
}

/// The work of a call in floating-point operations. Reading a byte of keys and values from memory takes as
/// long as some of them, which is what counts when decoding.
double work_of(const problem& p, const plan& summary) {
    constexpr double flops_per_byte = 5;
    const double seen =
        std::min(static_cast<double>(p.keys), summary.visible_scores / static_cast<double>(p.heads));
    const double bytes = static_cast<double>(p.batch * p.kv_heads) * seen *
                         (row_bytes(p.k_layout.type, p.head_dim) + row_bytes(p.v_layout.type, p.value_dim));
    return std::max(summary.flops, flops_per_byte * bytes);
}

int useful_threads(double work, std::int64_t tasks, const options& how) {
    const int allowed = usable_threads(how.threads, how.parallel_for);
    const double worth = std::max(1.0, work / flops_per_thread);
    const auto enough = static_cast<std::int64_t>(std::min(worth, 1e6));
    return static_cast<int>(std::max<std::int64_t>(1, std::min({std::int64_t{allowed}, tasks, enough})));
}

/// The most parts that the keys of a block of query rows can be cut into. Only if a key head has a single
/// panel of rows: the states of all chunks then take less than a fifth of the memory of K and V.
std::int64_t most_key_parts(const problem& p, const kernels::table& kernels) {
    constexpr std::int64_t least_chunks = 2;  // of a part
    if (p.queries * p.group > kernels.panel_rows) { return 1; }
    return std::max<std::int64_t>(count_chunks(p) / least_chunks, 1);
}

/// Into how many parts the keys of so few blocks are cut, so that all threads have work.
std::int64_t count_key_parts(const problem& p, const kernels::table& kernels, std::int64_t blocks,
                             int threads) {
    if (threads == 1) { return 1; }
    return std::clamp<std::int64_t>(divide_up(key_tasks_per_thread * threads, blocks), 1,
                                    most_key_parts(p, kernels));
}

/// The bytes of so many numbers that the call computes with.
bool reals_of(const problem& p, std::initializer_list<std::int64_t> factors, std::size_t& bytes) {
    std::size_t count = 0;
    const bool is_f64 = p.real == element_type::f64;
    if (!(is_f64 ? count_elements<double> : count_elements<float>)(factors, count)) { return false; }
    bytes = count * (is_f64 ? sizeof(double) : sizeof(float));
    return true;
}

/// Whether key heads should take turns. Where the rows of all heads lie side by side for each token, a memory
/// page has few keys of a head, and one head after the other would look up all pages once more. But most keys
/// must be seen, and with each turn, query rows are made ready again: a panel of a key head, at most.
bool gains_by_turns(const problem& p, const plan& summary, const kernels::table& kernels) {
    const auto is_far = [](const kernels::row_layout& layout, std::int64_t dim) {
        return layout.token_stride >= 2 * dim && row_bytes(layout.type, layout.token_stride) >= far_apart;
    };
    const double rows = static_cast<double>(p.batch) * static_cast<double>(p.heads * p.queries);
    const double pairs = rows * static_cast<double>(p.keys);
    return p.kv_heads > 1 && p.queries * p.group <= kernels.panel_rows &&
           count_chunks(p) > 2 * chunks_of_turn && summary.visible_scores > pairs / 2 &&
           (is_far(p.k_layout, p.head_dim) || is_far(p.v_layout, p.value_dim));
}

/// Whether rows can be read where they are: as what is computed in, dense, and not so far apart that a chunk
/// of them fights for the same cache sets and pages.
bool lies_well(const problem& p, const kernels::row_layout& layout, std::int64_t dim) {
    return layout.type == p.real && layout.element_stride == 1 && layout.token_stride >= dim &&
           layout.token_stride <= dim + dim / 2;
}

/// Whether no chunk of keys lies on two pages.
bool has_whole_chunks(const problem& p) {
    bool whole = p.page_keys % contract::chunk_keys == 0 && p.key_position % contract::chunk_keys == 0;
    for (const std::int64_t position : p.key_positions) {
        whole = whole && position % contract::chunk_keys == 0;
    }
    return whole;
}

kernels::shape shape_of(const problem& p, const kernels::table& kernels, std::int64_t block_rows) {
    const bool scattered = p.pages != nullptr && !has_whole_chunks(p);
    const bool copy_k = scattered || !lies_well(p, p.k_layout, p.head_dim);
    const bool copy_v =
        scattered || !lies_well(p, p.v_layout, p.value_dim) || p.value_dim % kernels.value_multiple != 0;
    return {p.group,     p.keys,     p.head_dim, p.value_dim, 3 + p.value_dim, p.k_layout,     p.v_layout,
            p.q_type,    p.out_type, copy_k,     copy_v,      p.page_keys,     p.table_stride, block_rows,
            p.intervals, p.masks,    p.scores,   p.sinks,     p.chosen,        p.sum_keys};
}

/// The most rows of a block, in whole panels, whose scratch is within the budget; at least one panel.
std::int64_t rows_within_budget(const problem& p, const kernels::table& kernels, std::size_t budget) {
    std::int64_t rows = most_block_rows / kernels.panel_rows * kernels.panel_rows;
    while (rows > kernels.panel_rows && kernels.scratch_bytes(shape_of(p, kernels, rows)) > budget) {
        rows -= kernels.panel_rows;
    }
    return rows;
}

std::size_t list_bytes(const problem& p) {
    return are_sequences_alike(p) ? 0 : static_cast<std::size_t>(p.batch) * sizeof(listed_sequence);
}

/// The final maximum and sum of each query row, where weights are summed over them.
bool find_row_state_bytes(const problem& p, std::size_t& bytes) {
    bytes = 0;
    return !p.sum_keys || reals_of(p, {2, p.batch_entries, p.heads, p.query_tokens}, bytes);
}

/// The blocks of one key head of a sequence.
std::int64_t count_blocks(const problem& p, std::int64_t sequence, std::int64_t block_rows) {
    return divide_up(sequence_of(p, sequence).queries * p.group, block_rows);
}

std::int64_t count_tasks(const problem& p, std::int64_t block_rows) {
    if (are_sequences_alike(p)) { return p.batch * p.kv_heads * divide_up(p.queries * p.group, block_rows); }
    std::int64_t blocks = 0;
    for (std::int64_t index = 0; index < p.batch; ++index) { blocks += count_blocks(p, index, block_rows); }
    return blocks * p.kv_heads;
}

/// How a call is to be cut.
struct cut_limits {
    std::int64_t block_rows;
    int threads;
    std::size_t turn_bytes;  ///< the most memory for the states of key heads that take turns
};

/// Finds whether key heads take turns, and room for the states that tasks leave: those of all chunks of all
/// blocks, where keys are cut into parts; and in both cases those of all rows.
bool find_states(const problem& p, const kernels::table& kernels, const cut_limits& limits,
                 std::int64_t blocks, work_plan& w, std::size_t& bytes) {
    const bool in_parts = w.summary.key_parts > 1;
    bytes = 0;
    w.head_groups = 0;
    if (!in_parts && !gains_by_turns(p, w.summary, kernels)) { return true; }
    if (!reals_of(p, {blocks, w.summary.block_rows, states_per_row(w, p), w.shape.state_floats}, bytes)) {
        return false;
    }
    if (in_parts) { return true; }
    if (bytes > limits.turn_bytes) {
        bytes = 0;
    } else {
        w.head_groups = std::min(divide_up(w.summary.threads, blocks / p.kv_heads), p.kv_heads);
    }
    return true;
}

/// Completes a plan.
bool cut(const problem& p, const kernels::table& kernels, const cut_limits& limits, work_plan& w) {
    const std::int64_t rows = p.queries * p.group;
    plan& summary = w.summary;
    summary.block_rows = std::min(limits.block_rows, rows);
    w.shape = shape_of(p, kernels, summary.block_rows);
    w.blocks_per_head = divide_up(rows, summary.block_rows);
    const std::int64_t blocks = count_tasks(p, summary.block_rows);
    summary.key_parts = count_key_parts(p, kernels, blocks, limits.threads);
    summary.tasks = blocks * summary.key_parts;
    summary.threads = static_cast<int>(std::clamp<std::int64_t>(summary.tasks, 1, limits.threads));
    summary.scratch_bytes_per_thread = kernels.scratch_bytes(w.shape);
    w.list_offset = summary.scratch_bytes_per_thread * static_cast<std::size_t>(summary.threads);
    w.row_state_offset = w.list_offset + list_bytes(p);
    std::size_t row_bytes = 0;
    std::size_t state_bytes = 0;
    if (!find_row_state_bytes(p, row_bytes) || !find_states(p, kernels, limits, blocks, w, state_bytes)) {
        return false;
    }
    w.chunk_state_offset = w.row_state_offset + row_bytes;
    summary.scratch_bytes = w.chunk_state_offset + state_bytes;
    summary.shared_scratch_bytes = summary.scratch_bytes - w.list_offset;
    return true;
}

/// The same within the workspace, if there is one: smaller blocks cost less speed than heads that do not take
/// turns, and these less than fewer threads.
bool cut_to_fit(const problem& p, const kernels::table& kernels, cut_limits limits,
                std::span<std::byte> workspace, work_plan& w) {
    const std::size_t room = workspace.data() == nullptr ? std::numeric_limits<std::size_t>::max()
                                                         : aligned_part(workspace).size();
    if (!cut(p, kernels, limits, w)) { return false; }
    while (w.summary.scratch_bytes > room) {
        if (limits.block_rows > kernels.panel_rows) {
            limits.block_rows -= kernels.panel_rows;
        } else if (w.head_groups > 0) {
            limits.turn_bytes = 0;
        } else if (limits.threads > 1) {
            limits.threads = w.summary.threads > 1 ? w.summary.threads - 1 : 1;
        } else {
            return refuse("workspace: ", room,
                          " bytes from the first multiple of 64 on given, it must be at least ",
                          w.summary.scratch_bytes);
        }
        if (!cut(p, kernels, limits, w)) { return false; }
    }
    return true;
}

row_block listed_block(const work_plan& w, const problem& p, std::int64_t index) {
    const std::int64_t number = index / p.kv_heads;
    const auto after = std::upper_bound(
        w.sequences.begin(), w.sequences.end(), number,
        [](std::int64_t block, const listed_sequence& of) { return block < of.first_block; });
    const listed_sequence& of = *(after - 1);
    const std::int64_t before = number - of.first_block;
    const std::int64_t block = count_blocks(p, of.number, w.summary.block_rows) - 1 - before;
    const std::int64_t first = block * w.summary.block_rows;
    const std::int64_t rows = sequence_of(p, of.number).queries * p.group;
    return {of.number, index % p.kv_heads, first, std::min(w.summary.block_rows, rows - first)};
}

numbers numbers_for(const problem& p, arithmetic how) {
    if (p.real == element_type::f64) { return numbers::f64; }
    return how == arithmetic::fastest ? numbers::bf16 : numbers::f32;
}

}  // namespace

std::int64_t states_per_row(const work_plan& w, const problem& p) {
    return (w.summary.key_parts == 1 ? 0 : count_chunks(p)) + 1;
}

std::span<std::byte> aligned_part(std::span<std::byte> workspace) {
    void* start = workspace.data();
    std::size_t bytes = workspace.size();
    if (std::align(static_cast<std::size_t>(scratch_array::alignment), 0, start, bytes) == nullptr) {
        return {};
    }
    return {static_cast<std::byte*>(start), bytes};
}

arithmetic arithmetic_for(const problem& p, isa which) {
    const bool is_bf16 = p.q_type == element_type::bf16 && p.k_layout.type == element_type::bf16 &&
                         p.v_layout.type == element_type::bf16;
    return p.arithmetic == arithmetic::fastest && is_bf16 && has_fastest(which) ? arithmetic::fastest
                                                                                : arithmetic::exact;
}

bool make_plan(const problem& p, const options& how, bool turns, work_plan& w) {
    w = {};
    if (!find_active_isa(w.summary.isa)) { return false; }
    w.summary.arithmetic = arithmetic_for(p, w.summary.isa);
    w.kernels = &kernels_of(w.summary.isa, numbers_for(p, w.summary.arithmetic));
    const kernels::table& kernels = *w.kernels;
    w.summary.chunk_keys = contract::chunk_keys;
    w.summary.panel_rows = kernels.panel_rows;
    w.summary.visible_scores = visible_pairs(p) * static_cast<double>(p.heads);
    w.summary.flops = 2.0 * static_cast<double>(p.head_dim + p.value_dim) * w.summary.visible_scores;
    // Products of extents are counted in 63 bits where none of them is 0.
    if (p.batch == 0 || p.heads == 0 || p.queries == 0 || !p.has_results) { return true; }
    std::int64_t block =
        rows_within_budget(p, kernels, how.scratch_budget == 0 ? preferred_scratch() : how.scratch_budget);
    const std::int64_t most_tasks = count_tasks(p, kernels.panel_rows) * most_key_parts(p, kernels);
    const int threads = useful_threads(work_of(p, w.summary), most_tasks, how);
    while (threads > 1 && block > kernels.panel_rows && count_tasks(p, block) < tasks_per_thread * threads) {
        block -= kernels.panel_rows;
    }
    const std::size_t budget =
        how.scratch_budget == 0 ? std::numeric_limits<std::size_t>::max() : how.scratch_budget;
    return cut_to_fit(p, kernels, {block, threads, turns ? budget : 0}, how.workspace, w);
}

void list_sequences(const problem& p, std::byte* scratch, work_plan& w) {
    if (are_sequences_alike(p)) { return; }
    const std::span list(reinterpret_cast<listed_sequence*>(scratch + w.list_offset),
                         static_cast<std::size_t>(p.batch));
    for (std::int64_t number = 0; number < p.batch; ++number) {
        const sequence of = sequence_of(p, number);
        const std::int64_t rows = std::min(w.summary.block_rows, of.queries * p.group);
        const double weight = static_cast<double>(rows) * static_cast<double>(of.keys + contract::chunk_keys);
        new (&list[static_cast<std::size_t>(number)]) listed_sequence{number, 0, weight};
    }
    std::sort(list.begin(), list.end(), [](const listed_sequence& a, const listed_sequence& b) {
        return a.weight > b.weight || (a.weight == b.weight && a.number < b.number);
    });
    std::int64_t blocks = 0;
    for (listed_sequence& of : list) {
        of.first_block = blocks;
        blocks += count_blocks(p, of.number, w.summary.block_rows);
    }
    w.sequences = list;
}

row_block block_number(const work_plan& w, const problem& p, std::int64_t index) {
    if (!w.sequences.empty()) { return listed_block(w, p, index); }
    // Later rows see more keys under a causal mask, so the last block of every head comes first.
    const std::int64_t key_heads = p.batch * p.kv_heads;
    const std::int64_t block = w.blocks_per_head - 1 - index / key_heads;
    const std::int64_t head = index % key_heads;
    const std::int64_t first = block * w.summary.block_rows;
    return {head / p.kv_heads, head % p.kv_heads, first,
            std::min(w.summary.block_rows, p.queries * p.group - first)};
}

}  // namespace tilewise

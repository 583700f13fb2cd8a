#include "option_checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "contract.hpp"

namespace tilewise {

namespace {

bool check_scale(const options& how, const problem& p) {
    if (how.scale.has_value() && !std::isfinite(*how.scale)) {
        return refuse("scale: ", *how.scale, " given, it must be finite");
    }
    if (!how.scale_f64.has_value()) { return true; }
    if (p.real != element_type::f64) { return refuse("scale_f64: given, q must be f64 then"); }
    if (how.scale.has_value()) { return refuse("scale_f64: given beside scale"); }
    if (!std::isfinite(*how.scale_f64)) {
        return refuse("scale_f64: ", *how.scale_f64, " given, it must be finite");
    }
    return true;
}

double scale_of(const options& how, std::int64_t head_dim) {
    if (how.scale_f64.has_value()) { return *how.scale_f64; }
    if (how.scale.has_value()) { return static_cast<double>(*how.scale); }
    return head_dim == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

/// Contract step 2.
template <class Real>
void find_scaling(double scale, float soft_cap, bool modified, kernels::score_rules& rules) {
    const contract::score_scaling scaling = contract::scaling_for(static_cast<Real>(scale), modified);
    const auto cap = static_cast<Real>(soft_cap);
    rules.multiply = scaling.multiply;
    rules.scale = scaling.scale;
    rules.exponent = scaling.exponent;
    rules.soft_cap = static_cast<double>(cap);
    rules.soft_cap_factor = cap == 0 ? 0.0 : static_cast<double>(static_cast<Real>(scale) / cap);
}

bool check_modes(const options& how) {
    if (how.causal != causal::none && how.causal != causal::bottom_right && how.causal != causal::top_left) {
        return refuse("causal: number ", static_cast<int>(how.causal),
                      " given, it must be none, bottom_right or top_left");
    }
    if (how.arithmetic != arithmetic::exact && how.arithmetic != arithmetic::fastest) {
        return refuse("arithmetic: number ", static_cast<int>(how.arithmetic),
                      " given, it must be exact or fastest");
    }
    if (how.threads < 0) {
        return refuse("threads: ", how.threads,
                      " given, it must be at least 0 (0 means as many as OpenMP would use)");
    }
    if (how.threads == 0 && how.parallel_for.run != nullptr) {
        return refuse("threads: 0 given, it must be at least 1 with parallel_for");
    }
    return true;
}

bool require_not_negative(std::string_view name, std::int64_t value) {
    if (value < 0) { return refuse(name, ": ", value, " given, it must be at least 0"); }
    return true;
}

/// Positions are added to lengths; nobody has 2^61 tokens.
constexpr std::int64_t largest_position = std::int64_t{1} << 61;

bool check_query_position(const options& how) {
    if (how.query_position.has_value()) {
        const std::int64_t position = *how.query_position;
        if (position < -largest_position || position > largest_position) {
            return refuse("query_position: ", position, " given, it must be within 2^61 of 0");
        }
        if (how.causal == causal::top_left && position != how.key_position) {
            return refuse("query_position: ", position, " given, causal::top_left means ", how.key_position);
        }
    }
    return true;
}

bool check_documents(const options& how) {
    for (std::size_t d = 1; d < how.documents.size(); ++d) {
        if (how.documents[d] < how.documents[d - 1]) {
            return refuse("documents: boundary ", d, " is ", how.documents[d],
                          ", it must be at least the one before it, ", how.documents[d - 1]);
        }
    }
    if (how.documents.size() == 1) {
        return refuse("documents: 1 boundary given, it must be none, or 2 or more");
    }
    return true;
}

bool check_intervals(const options& how, kernels::interval_rules& rules) {
    if (!require_not_negative("window_left", how.window_left.value_or(0)) ||
        !require_not_negative("window_right", how.window_right.value_or(0)) ||
        !require_not_negative("prefix", how.prefix) ||
        !require_not_negative("attention_chunk", how.attention_chunk) || !check_query_position(how) ||
        !check_documents(how)) {
        return false;
    }
    constexpr std::int64_t open = std::numeric_limits<std::int64_t>::max();
    rules.causal = how.causal != causal::none;
    rules.window_left = how.window_left.value_or(open);
    rules.window_right = how.window_right.value_or(open);
    rules.prefix = how.prefix;
    rules.attention_chunk = how.attention_chunk;
    rules.documents = how.documents.empty() ? nullptr : how.documents.data();
    rules.document_count = static_cast<std::int64_t>(how.documents.size());
    return true;
}

/// An extent of 1 serves all: its stride is 0 then.
bool broadcast_stride(std::string_view name, const const_tensor& view, std::size_t a, std::int64_t wanted,
                      std::int64_t& stride) {
    if (view.extents[a] != wanted && view.extents[a] != 1) {
        return refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", wanted, " or 1");
    }
    stride = view.extents[a] == 1 ? 0 : view.strides[a];
    return true;
}

/// A view that is read for each (batch, head, row, column); absent if its data is null.
bool check_grid(std::string_view name, const const_tensor& view, std::span<const element_type> allowed,
                const problem& p, std::int64_t rows, std::int64_t columns, memory_map& memory,
                kernels::grid& grid) {
    if (view.data == nullptr) { return true; }
    byte_range bytes;
    const const_tensor sound = with_sound_strides(view);
    grid.data = sound.data;
    grid.key_stride = sound.strides[3];
    if (!check_view(name, view, allowed, bytes) ||
        !broadcast_stride(name, sound, 0, p.batch, grid.batch_stride) ||
        !broadcast_stride(name, sound, 1, p.heads, grid.head_stride) ||
        !broadcast_stride(name, sound, 2, rows, grid.query_stride)) {
        return false;
    }
    if (view.head_dim() != columns) {
        return refuse(name, ": last extent is ", view.head_dim(), ", it must be ", columns);
    }
    return memory.read(name, bytes);
}

std::int64_t count_blocks(std::int64_t tokens, std::int64_t block) {
    return tokens / block + (tokens % block != 0 ? 1 : 0);
}

bool check_masks(const options& how, const problem& p, memory_map& memory, kernels::tensor_masks& masks) {
    constexpr element_type mask_types[] = {element_type::boolean, element_type::bit};
    masks.storage =
        how.mask.type == element_type::bit ? kernels::mask_storage::bits : kernels::mask_storage::bytes;
    masks.block_queries = 1;
    masks.block_keys = 1;
    if (!check_grid("mask", how.mask, mask_types, p, p.queries, p.keys, memory, masks.visible)) {
        return false;
    }
    if (how.blocks.visible.data == nullptr) { return true; }
    if (how.blocks.query_block < 1 || how.blocks.key_block < 1) {
        return refuse("blocks: query_block ", how.blocks.query_block, " and key_block ", how.blocks.key_block,
                      " given, both must be at least 1");
    }
    masks.block_queries = how.blocks.query_block;
    masks.block_keys = how.blocks.key_block;
    return check_grid("blocks", how.blocks.visible, std::span(mask_types).first(1), p,
                      count_blocks(p.queries, masks.block_queries), count_blocks(p.keys, masks.block_keys),
                      memory, masks.blocks);
}

bool require_per_head(std::string_view name, std::span<const float> values, const problem& p) {
    if (!values.empty() && static_cast<std::int64_t>(values.size()) != p.heads) {
        return refuse(name, ": ", values.size(), " values given, it must be one for each of ", p.heads,
                      " query heads");
    }
    return true;
}

bool check_scores(const options& how, const problem& p, memory_map& memory, kernels::score_rules& rules) {
    if (!(how.soft_cap >= 0.0F) || !std::isfinite(how.soft_cap)) {
        return refuse("soft_cap: ", how.soft_cap, " given, it must be finite and positive, or 0 for none");
    }
    if (how.score_function.call != nullptr && p.real == element_type::f64) {
        return refuse("score_function: given with q of f64, it must be f32, f16 or bf16 then");
    }
    if (!require_per_head("alibi_slopes", how.alibi_slopes, p)) { return false; }
    for (const float slope : how.alibi_slopes) {
        if (!std::isfinite(slope)) { return refuse("alibi_slopes: ", slope, " given, they must be finite"); }
    }
    const std::span<const element_type> bias_types =
        p.real == element_type::f64 ? std::span<const element_type>(f64_bias_types) : float_types;
    if (!check_grid("bias", how.bias, bias_types, p, p.queries, p.keys, memory, rules.bias) ||
        !check_scale(how, p)) {
        return false;
    }
    rules.bias_type = how.bias.type;
    rules.alibi_slopes = how.alibi_slopes.empty() ? nullptr : how.alibi_slopes.data();
    rules.function = how.score_function.call;
    rules.function_context = how.score_function.context;
    const bool modified = how.soft_cap != 0.0F || rules.bias.data != nullptr ||
                          rules.alibi_slopes != nullptr || rules.function != nullptr;
    (p.real == element_type::f64 ? find_scaling<double> : find_scaling<float>)(scale_of(how, p.head_dim),
                                                                               how.soft_cap, modified, rules);
    return true;
}

bool check_key_lengths(std::span<const std::int64_t> lengths, const problem& p) {
    if (lengths.empty()) { return true; }
    if (static_cast<std::int64_t>(lengths.size()) != p.batch) {
        return refuse("key_lengths: ", lengths.size(), " values given, it must be one for each of ", p.batch,
                      " sequences");
    }
    for (std::size_t b = 0; b < lengths.size(); ++b) {
        const std::int64_t keys = sequence_of(p, static_cast<std::int64_t>(b)).keys;
        if (lengths[b] < 0 || lengths[b] > keys) {
            return refuse("key_lengths: ", lengths[b], " given for sequence ", b, ", it must be from 0 to ",
                          keys, ", its keys");
        }
    }
    return true;
}

/// Ascending starts of packed sequences, and the end of the last. Finds the length of the longest.
bool check_starts(std::string_view name, std::span<const std::int64_t> starts, std::int64_t tokens,
                  std::int64_t& longest) {
    if (starts.size() < 2) {
        return refuse(name, ": ", starts.size(), " values given, it must be 2 or more");
    }
    for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
        if (starts[b + 1] < starts[b]) {
            return refuse(name, ": ", starts[b + 1], " follows ", starts[b], ", values must not descend");
        }
    }
    if (starts.front() < 0 || starts.back() > tokens) {
        return refuse(name, ": from ", starts.front(), " to ", starts.back(),
                      " given, they must be from 0 to ", tokens);
    }
    longest = 0;
    for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
        longest = std::max(longest, starts[b + 1] - starts[b]);
    }
    return true;
}

bool check_ranges(const options& how, problem& p, memory_map& memory) {
    const key_ranges& ranges = how.ranges;
    if ((ranges.first.data == nullptr) != (ranges.last.data == nullptr)) {
        return refuse("ranges: only one of first and last given, it must be both or none");
    }
    constexpr element_type key_types[] = {element_type::i32};
    return check_grid("ranges.first", ranges.first, key_types, p, p.queries, 1, memory,
                      p.intervals.first_key) &&
           check_grid("ranges.last", ranges.last, key_types, p, p.queries, 1, memory, p.intervals.last_key);
}

/// A position more than 0 leaves room for the keys after it.
bool require_position(std::string_view name, std::int64_t position, const problem& p) {
    const std::int64_t largest = position == 0 ? 0 : largest_position - std::min(p.keys, largest_position);
    if (position < 0 || position > largest) {
        return refuse(name, ": ", position, " given with ", p.keys,
                      " keys, it must be at least 0, and both at most 2^61");
    }
    return true;
}

bool check_key_positions(const options& how, problem& p) {
    if (!require_position("key_position", how.key_position, p)) { return false; }
    p.key_position = how.key_position;
    if (how.key_positions.empty()) { return true; }
    if (static_cast<std::int64_t>(how.key_positions.size()) != p.batch) {
        return refuse("key_positions: ", how.key_positions.size(),
                      " values given, it must be one for each of ", p.batch, " sequences");
    }
    if (how.key_position != 0) {
        return refuse("key_position: ", how.key_position, " given beside key_positions");
    }
    for (const std::int64_t position : how.key_positions) {
        if (!require_position("key_positions", position, p)) { return false; }
    }
    p.key_positions = how.key_positions;
    return true;
}

}  // namespace

bool check_packing(const options& how, const const_tensor& q, const const_tensor& k, problem& p) {
    if (how.query_starts.empty() && how.key_starts.empty()) { return true; }
    const bool paged = how.block_table.data != nullptr;
    if (q.batch() != 1) { return refuse("q: batch is ", q.batch(), ", it must be 1 with query_starts"); }
    if (how.key_starts.size() != (paged ? 0 : how.query_starts.size())) {
        return refuse("key_starts: ", how.key_starts.size(), " values given, it must be ",
                      paged ? "none with block_table" : "as many as query_starts has, ",
                      paged ? 0 : how.query_starts.size());
    }
    if (!check_starts("query_starts", how.query_starts, q.tokens(), p.queries) ||
        (!paged && !check_starts("key_starts", how.key_starts, k.tokens(), p.keys))) {
        return false;
    }
    p.batch = static_cast<std::int64_t>(how.query_starts.size()) - 1;
    p.query_starts = how.query_starts;
    p.key_starts = how.key_starts;
    return true;
}

bool check_pages(const options& how, const const_tensor& k, memory_map& memory, problem& p) {
    if (how.block_table.data == nullptr) { return true; }
    const const_tensor table = with_sound_strides(how.block_table);
    byte_range bytes;
    if (!check_view("block_table", table, element_type::i32, bytes) || !memory.read("block_table", bytes) ||
        !require_extent("block_table", table, axis::batch, p.batch, "q, or sequences") ||
        !require_extent("block_table", table, axis::heads, 1, "a table for all heads") ||
        !require_extent("block_table", table, axis::tokens, 1, "a list of pages")) {
        return false;
    }
    if (how.key_lengths.empty() && p.batch != 0) {
        return refuse("key_lengths: none given, block_table needs one for each sequence");
    }
    if (how.extra.key_weights.data != nullptr && !how.query_starts.empty()) {
        return refuse(
            "extra.key_weights: given with block_table and query_starts, only one of these is allowed");
    }
    p.pages = static_cast<const std::int32_t*>(table.data);
    p.page_keys = k.tokens();
    p.sequence_stride = table.strides[0];
    p.table_stride = table.strides[3];
    if (__builtin_mul_overflow(table.head_dim(), p.page_keys, &p.keys)) {
        return refuse("block_table: ", table.head_dim(), " pages of ", p.page_keys,
                      " keys given, their product must fit in 63 bits");
    }
    if (!check_key_lengths(how.key_lengths, p)) { return false; }
    for (std::size_t b = 0; b < how.key_lengths.size(); ++b) {
        const std::int32_t* const pages = p.pages + static_cast<std::int64_t>(b) * p.sequence_stride;
        for (std::int64_t n = 0; n * p.page_keys < how.key_lengths[b]; ++n) {
            const std::int32_t page = pages[n * p.table_stride];
            if (page < 0 || page >= k.batch()) {
                return refuse("block_table: page ", page, " given for sequence ", b, " at ", n,
                              ", it must be from 0 to ", k.batch() - 1);
            }
        }
    }
    p.keys = p.batch == 0 ? 0 : *std::max_element(how.key_lengths.begin(), how.key_lengths.end());
    return true;
}

bool check_workspace(const options& how, memory_map& memory) {
    const auto first = reinterpret_cast<std::uintptr_t>(how.workspace.data());
    if (first == 0 && !how.workspace.empty()) {
        return refuse("workspace: null data given, it has ", how.workspace.size(), " bytes");
    }
    if (how.workspace.size() > std::numeric_limits<std::uintptr_t>::max() - first) {
        return refuse("workspace: ", how.workspace.size(), " bytes at address ", first,
                      " given, all must have addresses");
    }
    return memory.write("workspace", {first, first + how.workspace.size()});
}

bool check_options(const options& how, memory_map& memory, problem& p) {
    if (!check_modes(how) || !check_intervals(how, p.intervals) || !check_ranges(how, p, memory) ||
        !check_masks(how, p, memory, p.masks) || !check_scores(how, p, memory, p.scores) ||
        !require_per_head("sinks", how.sinks, p) || !check_key_lengths(how.key_lengths, p)) {
        return false;
    }
    p.sinks = how.sinks.empty() ? nullptr : how.sinks.data();
    p.arithmetic = how.arithmetic;
    p.key_lengths = how.key_lengths;
    p.is_top_left = how.causal == causal::top_left;
    p.query_position = how.query_position;
    return check_key_positions(how, p) && check_workspace(how, memory);
}

}  // namespace tilewise

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

float checked_scale(const options& how, std::int64_t head_dim) {
    if (!how.scale.has_value()) {
        return head_dim == 0 ? 1.0F : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    }
    if (!std::isfinite(*how.scale)) { refuse("scale: ", *how.scale, " given, it must be finite"); }
    return *how.scale;
}

void check_modes(const options& how) {
    if (how.causal != causal::none && how.causal != causal::bottom_right && how.causal != causal::top_left) {
        refuse("causal: number ", static_cast<int>(how.causal),
               " given, it must be none, bottom_right or top_left");
    }
    if (how.arithmetic != arithmetic::exact) {
        refuse("arithmetic: number ", static_cast<int>(how.arithmetic), " given, it must be exact");
    }
    if (how.threads < 0) {
        refuse("threads: ", how.threads,
               " given, it must be at least 0 (0 means as many as OpenMP would use)");
    }
    if (how.threads == 0 && how.parallel_for.run != nullptr) {
        refuse("threads: 0 given, it must be at least 1 with parallel_for");
    }
}

void require_not_negative(std::string_view name, std::int64_t value) {
    if (value < 0) { refuse(name, ": ", value, " given, it must be at least 0"); }
}

/// Positions are added to lengths; nobody has 2^61 tokens.
constexpr std::int64_t largest_position = std::int64_t{1} << 61;

kernels::interval_rules check_intervals(const options& how) {
    kernels::interval_rules rules{};
    rules.causal = how.causal != causal::none;
    constexpr std::int64_t open = std::numeric_limits<std::int64_t>::max();
    require_not_negative("window_left", how.window_left.value_or(0));
    require_not_negative("window_right", how.window_right.value_or(0));
    require_not_negative("prefix", how.prefix);
    require_not_negative("attention_chunk", how.attention_chunk);
    rules.window_left = how.window_left.value_or(open);
    rules.window_right = how.window_right.value_or(open);
    rules.prefix = how.prefix;
    rules.attention_chunk = how.attention_chunk;
    if (how.query_position.has_value()) {
        const std::int64_t position = *how.query_position;
        if (position < -largest_position || position > largest_position) {
            refuse("query_position: ", position, " given, it must be within 2^61 of 0");
        }
        if (how.causal == causal::top_left && position != how.key_position) {
            refuse("query_position: ", position, " given, causal::top_left means ", how.key_position);
        }
    }
    for (std::size_t d = 1; d < how.documents.size(); ++d) {
        if (how.documents[d] < how.documents[d - 1]) {
            refuse("documents: boundary ", d, " is ", how.documents[d],
                   ", it must be at least the one before it, ", how.documents[d - 1]);
        }
    }
    if (how.documents.size() == 1) { refuse("documents: 1 boundary given, it must be none, or 2 or more"); }
    rules.documents = how.documents.empty() ? nullptr : how.documents.data();
    rules.document_count = static_cast<std::int64_t>(how.documents.size());
    return rules;
}

/// An extent of 1 serves all: its stride is 0 then.
std::int64_t broadcast_stride(std::string_view name, const const_tensor& view, std::size_t a,
                              std::int64_t wanted) {
    if (view.extents[a] != wanted && view.extents[a] != 1) {
        refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", wanted, " or 1");
    }
    return view.extents[a] == 1 ? 0 : view.strides[a];
}

/// A view that is read for each (batch, head, row, column); absent if its data is null.
kernels::grid check_grid(std::string_view name, const const_tensor& view,
                         std::span<const element_type> allowed, const problem& p, std::int64_t rows,
                         std::int64_t columns, memory_map& memory) {
    if (view.data == nullptr) { return {}; }
    const byte_range bytes = check_view(name, view, allowed);
    const kernels::grid grid{view.data, broadcast_stride(name, view, 0, p.batch),
                             broadcast_stride(name, view, 1, p.heads), broadcast_stride(name, view, 2, rows),
                             view.strides[3]};
    if (view.head_dim() != columns) {
        refuse(name, ": last extent is ", view.head_dim(), ", it must be ", columns);
    }
    memory.read(name, bytes);
    return grid;
}

std::int64_t count_blocks(std::int64_t tokens, std::int64_t block) {
    return tokens / block + (tokens % block != 0 ? 1 : 0);
}

kernels::tensor_masks check_masks(const options& how, const problem& p, memory_map& memory) {
    kernels::tensor_masks masks{};
    constexpr element_type mask_types[] = {element_type::boolean, element_type::bit};
    masks.storage =
        how.mask.type == element_type::bit ? kernels::mask_storage::bits : kernels::mask_storage::bytes;
    masks.visible = check_grid("mask", how.mask, mask_types, p, p.queries, p.keys, memory);
    masks.block_queries = 1;
    masks.block_keys = 1;
    if (how.blocks.visible.data == nullptr) { return masks; }
    if (how.blocks.query_block < 1 || how.blocks.key_block < 1) {
        refuse("blocks: query_block ", how.blocks.query_block, " and key_block ", how.blocks.key_block,
               " given, both must be at least 1");
    }
    masks.block_queries = how.blocks.query_block;
    masks.block_keys = how.blocks.key_block;
    masks.blocks = check_grid("blocks", how.blocks.visible, std::span(mask_types).first(1), p,
                              count_blocks(p.queries, masks.block_queries),
                              count_blocks(p.keys, masks.block_keys), memory);
    return masks;
}

void require_per_head(std::string_view name, std::span<const float> values, const problem& p) {
    if (!values.empty() && static_cast<std::int64_t>(values.size()) != p.heads) {
        refuse(name, ": ", values.size(), " values given, it must be one for each of ", p.heads,
               " query heads");
    }
}

kernels::score_rules check_scores(const options& how, const problem& p, memory_map& memory) {
    kernels::score_rules rules{};
    if (!(how.soft_cap >= 0.0F) || !std::isfinite(how.soft_cap)) {
        refuse("soft_cap: ", how.soft_cap, " given, it must be finite and positive, or 0 for none");
    }
    require_per_head("alibi_slopes", how.alibi_slopes, p);
    for (const float slope : how.alibi_slopes) {
        if (!std::isfinite(slope)) { refuse("alibi_slopes: ", slope, " given, they must be finite"); }
    }
    rules.bias = check_grid("bias", how.bias, float_types, p, p.queries, p.keys, memory);
    rules.bias_type = how.bias.type;
    rules.alibi_slopes = how.alibi_slopes.empty() ? nullptr : how.alibi_slopes.data();
    rules.soft_cap = how.soft_cap;
    rules.function = how.score_function.call;
    rules.function_context = how.score_function.context;
    const bool modified = rules.soft_cap != 0.0F || rules.bias.data != nullptr ||
                          rules.alibi_slopes != nullptr || rules.function != nullptr;
    const contract::score_scaling scaling = contract::scaling_for(checked_scale(how, p.head_dim), modified);
    rules.multiply = scaling.multiply;
    rules.scale = scaling.scale;
    rules.exponent = scaling.exponent;
    rules.soft_cap_factor = rules.soft_cap == 0.0F ? 0.0F : scaling.scale / rules.soft_cap;
    return rules;
}

void check_key_lengths(std::span<const std::int64_t> lengths, const problem& p) {
    if (lengths.empty()) { return; }
    if (static_cast<std::int64_t>(lengths.size()) != p.batch) {
        refuse("key_lengths: ", lengths.size(), " values given, it must be one for each of ", p.batch,
               " sequences");
    }
    for (std::size_t b = 0; b < lengths.size(); ++b) {
        const std::int64_t keys = sequence_of(p, static_cast<std::int64_t>(b)).keys;
        if (lengths[b] < 0 || lengths[b] > keys) {
            refuse("key_lengths: ", lengths[b], " given for sequence ", b, ", it must be from 0 to ", keys,
                   ", its keys");
        }
    }
}

/// Ascending starts of packed sequences, and the end of the last. Returns the length of the longest.
std::int64_t check_starts(std::string_view name, std::span<const std::int64_t> starts, std::int64_t tokens) {
    if (starts.size() < 2) { refuse(name, ": ", starts.size(), " values given, it must be 2 or more"); }
    std::int64_t longest = 0;
    for (std::size_t b = 0; b + 1 < starts.size(); ++b) {
        if (starts[b + 1] < starts[b]) {
            refuse(name, ": ", starts[b + 1], " follows ", starts[b], ", values must not descend");
        }
        longest = std::max(longest, starts[b + 1] - starts[b]);
    }
    if (starts.front() < 0 || starts.back() > tokens) {
        refuse(name, ": from ", starts.front(), " to ", starts.back(), " given, they must be from 0 to ",
               tokens);
    }
    return longest;
}

void check_ranges(const options& how, problem& p, memory_map& memory) {
    const key_ranges& ranges = how.ranges;
    if ((ranges.first.data == nullptr) != (ranges.last.data == nullptr)) {
        refuse("ranges: only one of first and last given, it must be both or none");
    }
    constexpr element_type key_types[] = {element_type::i32};
    p.intervals.first_key = check_grid("ranges.first", ranges.first, key_types, p, p.queries, 1, memory);
    p.intervals.last_key = check_grid("ranges.last", ranges.last, key_types, p, p.queries, 1, memory);
}

/// A position more than 0 leaves room for the keys after it.
void require_position(std::string_view name, std::int64_t position, const problem& p) {
    const std::int64_t largest = position == 0 ? 0 : largest_position - std::min(p.keys, largest_position);
    if (position < 0 || position > largest) {
        refuse(name, ": ", position, " given with ", p.keys,
               " keys, it must be at least 0, and both at most 2^61");
    }
}

void check_key_positions(const options& how, problem& p) {
    require_position("key_position", how.key_position, p);
    p.key_position = how.key_position;
    if (how.key_positions.empty()) { return; }
    if (static_cast<std::int64_t>(how.key_positions.size()) != p.batch) {
        refuse("key_positions: ", how.key_positions.size(), " values given, it must be one for each of ",
               p.batch, " sequences");
    }
    if (how.key_position != 0) { refuse("key_position: ", how.key_position, " given beside key_positions"); }
    for (const std::int64_t position : how.key_positions) { require_position("key_positions", position, p); }
    p.key_positions = how.key_positions;
}

void check_workspace(const options& how, memory_map& memory) {
    const auto first = reinterpret_cast<std::uintptr_t>(how.workspace.data());
    if (first == 0 && !how.workspace.empty()) {
        refuse("workspace: null data given, it has ", how.workspace.size(), " bytes");
    }
    memory.write("workspace", {first, first + how.workspace.size()});
}

}  // namespace

void check_packing(const options& how, const const_tensor& q, const const_tensor& k, problem& p) {
    if (how.query_starts.empty() && how.key_starts.empty()) { return; }
    const bool paged = how.block_table.data != nullptr;
    if (q.batch() != 1) { refuse("q: batch is ", q.batch(), ", it must be 1 with query_starts"); }
    if (how.key_starts.size() != (paged ? 0 : how.query_starts.size())) {
        refuse("key_starts: ", how.key_starts.size(), " values given, it must be ",
               paged ? "none with block_table" : "as many as query_starts has, ",
               paged ? 0 : how.query_starts.size());
    }
    p.queries = check_starts("query_starts", how.query_starts, q.tokens());
    if (!paged) { p.keys = check_starts("key_starts", how.key_starts, k.tokens()); }
    p.batch = static_cast<std::int64_t>(how.query_starts.size()) - 1;
    p.query_starts = how.query_starts;
    p.key_starts = how.key_starts;
}

void check_pages(const options& how, const const_tensor& k, memory_map& memory, problem& p) {
    const const_tensor& table = how.block_table;
    if (table.data == nullptr) { return; }
    constexpr element_type page_types[] = {element_type::i32};
    memory.read("block_table", check_view("block_table", table, page_types));
    require_extent("block_table", table, axis::batch, p.batch, "q, or sequences");
    require_extent("block_table", table, axis::heads, 1, "a table for all heads");
    require_extent("block_table", table, axis::tokens, 1, "a list of pages");
    if (how.key_lengths.empty() && p.batch != 0) {
        refuse("key_lengths: none given, block_table needs one for each sequence");
    }
    if (how.extra.key_weights.data != nullptr && !how.query_starts.empty()) {
        refuse("extra.key_weights: given with block_table and query_starts, only one of these is allowed");
    }
    p.pages = static_cast<const std::int32_t*>(table.data);
    p.page_keys = k.tokens();
    p.sequence_stride = table.strides[0];
    p.table_stride = table.strides[3];
    p.keys = table.head_dim() * p.page_keys;
    check_key_lengths(how.key_lengths, p);
    for (std::size_t b = 0; b < how.key_lengths.size(); ++b) {
        const std::int32_t* const pages = p.pages + static_cast<std::int64_t>(b) * p.sequence_stride;
        for (std::int64_t n = 0; n * p.page_keys < how.key_lengths[b]; ++n) {
            const std::int32_t page = pages[n * p.table_stride];
            if (page < 0 || page >= k.batch()) {
                refuse("block_table: page ", page, " given for sequence ", b, " at ", n,
                       ", it must be from 0 to ", k.batch() - 1);
            }
        }
    }
    p.keys = p.batch == 0 ? 0 : *std::max_element(how.key_lengths.begin(), how.key_lengths.end());
}

void check_options(const options& how, memory_map& memory, problem& p) {
    check_modes(how);
    p.intervals = check_intervals(how);
    check_ranges(how, p, memory);
    p.masks = check_masks(how, p, memory);
    p.scores = check_scores(how, p, memory);
    require_per_head("sinks", how.sinks, p);
    p.sinks = how.sinks.empty() ? nullptr : how.sinks.data();
    check_key_lengths(how.key_lengths, p);
    p.key_lengths = how.key_lengths;
    p.is_top_left = how.causal == causal::top_left;
    p.query_position = how.query_position;
    check_key_positions(how, p);
    check_workspace(how, memory);
}

}  // namespace tilewise

// See arguments.hpp. Nothing here reads or writes an element.

#include "arguments.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tilewise {

namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    std::ostringstream message;
    message << "tilewise: ";
    (message << ... << parts);
    throw std::invalid_argument(message.str());
}

constexpr std::string_view axis_names[4] = {"batch", "heads", "tokens", "head_dim"};

std::string type_name(element_type type) {
    switch (type) {
        case element_type::f32:
            return "f32";
        case element_type::i32:
            return "i32";
        case element_type::boolean:
            return "boolean";
        case element_type::bit:
            return "bit";
    }
    return "number " + std::to_string(static_cast<int>(type));
}

bool is_empty(const const_tensor& view) {
    return view.batch() == 0 || view.heads() == 0 || view.tokens() == 0 || view.head_dim() == 0;
}

/// The bytes [first, last) that a view may touch, as addresses.
struct byte_range {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
};

/// Checks one view by itself; its byte range is empty if it has no element.
byte_range check_view(std::string_view name, const const_tensor& view,
                      element_type type = element_type::f32) {
    if (view.type != type) {
        refuse(name, ": element type ", type_name(view.type), " given, it must be ", type_name(type));
    }
    for (std::size_t a = 0; a < 4; ++a) {
        if (view.extents[a] < 0) {
            refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be at least 0");
        }
    }
    if (is_empty(view)) { return {}; }
    if (view.data == nullptr) { refuse(name, ": null data given, the view has elements"); }
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    const std::int64_t bits = element_bits(view.type);
    const std::uintptr_t alignment = bits < 8 ? 1 : static_cast<std::uintptr_t>(bits / 8);
    if (address % alignment != 0) {
        refuse(name, ": data at address ", address, " given, it must be a multiple of ", alignment);
    }
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        std::int64_t reach = 0;
        std::int64_t& bound = view.strides[a] < 0 ? lowest : highest;
        if (__builtin_mul_overflow(view.extents[a] - 1, view.strides[a], &reach) ||
            __builtin_add_overflow(bound, reach, &bound)) {
            refuse(name, ": ", axis_names[a], " ", view.extents[a], " with stride ", view.strides[a],
                   " given, offsets must fit in 63 bits");
        }
    }
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 32;
    if (lowest < -limit || highest > limit) {
        refuse(name, ": elements from offset ", lowest, " to ", highest,
               " given, byte offsets must fit in 63 bits");
    }
    // Bits are rounded outwards to whole bytes.
    const std::int64_t first = lowest * bits;
    const std::int64_t last = (highest + 1) * bits;
    const std::int64_t first_byte = first / 8 - (first % 8 < 0 ? 1 : 0);
    return {address + static_cast<std::uintptr_t>(first_byte),
            address + static_cast<std::uintptr_t>((last + 7) / 8)};
}

void require_extent(std::string_view name, const const_tensor& view, axis along, std::int64_t wanted,
                    std::string_view reason) {
    const auto a = static_cast<std::size_t>(along);
    if (view.extents[a] != wanted) {
        refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", wanted, " as in ",
               reason);
    }
}

/// A written view must give every element a place of its own. Sorted by stride, each axis must step over
/// all that the smaller ones cover; this refuses some odd interleavings that would not overlap.
void require_distinct_elements(std::string_view name, const const_tensor& view) {
    if (is_empty(view)) { return; }
    std::int64_t covered = 0;
    bool used[4] = {};
    for (int round = 0; round < 4; ++round) {
        std::size_t smallest = 4;
        for (std::size_t a = 0; a < 4; ++a) {
            if (!used[a] && (smallest == 4 || std::abs(view.strides[a]) < std::abs(view.strides[smallest]))) {
                smallest = a;
            }
        }
        used[smallest] = true;
        if (view.extents[smallest] == 1) { continue; }
        const std::int64_t stride = std::abs(view.strides[smallest]);
        if (stride <= covered) {
            refuse(name, ": ", axis_names[smallest], " has stride ", view.strides[smallest],
                   ", which makes elements overlap; it must be at least ", covered + 1);
        }
        covered += (view.extents[smallest] - 1) * stride;
    }
}

void require_apart(std::string_view name, byte_range written, std::string_view other_name, byte_range other) {
    if (written.first < other.last && other.first < written.last) {
        refuse(name, ": its memory overlaps that of ", other_name, ", it must be apart from it");
    }
}

float checked_scale(const options& how, std::int64_t head_dim) {
    if (!how.scale.has_value()) {
        return head_dim == 0 ? 1.0F : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    }
    if (!std::isfinite(*how.scale)) { refuse("scale: ", *how.scale, " given, it must be finite"); }
    return *how.scale;
}

void check_options(const options& how) {
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
        if (how.causal == causal::top_left && position != 0) {
            refuse("query_position: ", position, " given, causal::top_left means 0");
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

struct written_ranges {
    byte_range out;
    byte_range lse;
};

/// A view that is read for each (batch, head, row, column); absent if its data is null.
kernels::grid check_grid(std::string_view name, const const_tensor& view, element_type type, const problem& p,
                         std::int64_t rows, std::int64_t columns, const written_ranges& written) {
    if (view.data == nullptr) { return {}; }
    const byte_range bytes = check_view(name, view, type);
    const kernels::grid grid{view.data, broadcast_stride(name, view, 0, p.batch),
                             broadcast_stride(name, view, 1, p.heads), broadcast_stride(name, view, 2, rows),
                             view.strides[3]};
    if (view.head_dim() != columns) {
        refuse(name, ": last extent is ", view.head_dim(), ", it must be ", columns);
    }
    require_apart("out", written.out, name, bytes);
    require_apart("lse", written.lse, name, bytes);
    return grid;
}

std::int64_t count_blocks(std::int64_t tokens, std::int64_t block) {
    return tokens / block + (tokens % block != 0 ? 1 : 0);
}

kernels::tensor_masks check_masks(const options& how, const problem& p, const written_ranges& written) {
    kernels::tensor_masks masks{};
    const bool bits = how.mask.type == element_type::bit;
    masks.storage = bits ? kernels::mask_storage::bits : kernels::mask_storage::bytes;
    masks.visible = check_grid("mask", how.mask, bits ? element_type::bit : element_type::boolean, p,
                               p.queries, p.keys, written);
    masks.block_queries = 1;
    masks.block_keys = 1;
    if (how.blocks.visible.data == nullptr) { return masks; }
    if (how.blocks.query_block < 1 || how.blocks.key_block < 1) {
        refuse("blocks: query_block ", how.blocks.query_block, " and key_block ", how.blocks.key_block,
               " given, both must be at least 1");
    }
    masks.block_queries = how.blocks.query_block;
    masks.block_keys = how.blocks.key_block;
    masks.blocks = check_grid("blocks", how.blocks.visible, element_type::boolean, p,
                              count_blocks(p.queries, masks.block_queries),
                              count_blocks(p.keys, masks.block_keys), written);
    return masks;
}

void require_per_head(std::string_view name, std::span<const float> values, const problem& p) {
    if (!values.empty() && static_cast<std::int64_t>(values.size()) != p.heads) {
        refuse(name, ": ", values.size(), " values given, it must be one for each of ", p.heads,
               " query heads");
    }
}

kernels::score_rules check_scores(const options& how, const problem& p, const written_ranges& written) {
    kernels::score_rules rules{};
    if (!(how.soft_cap >= 0.0F) || !std::isfinite(how.soft_cap)) {
        refuse("soft_cap: ", how.soft_cap, " given, it must be finite and positive, or 0 for none");
    }
    require_per_head("alibi_slopes", how.alibi_slopes, p);
    for (const float slope : how.alibi_slopes) {
        if (!std::isfinite(slope)) { refuse("alibi_slopes: ", slope, " given, they must be finite"); }
    }
    rules.bias = check_grid("bias", how.bias, element_type::f32, p, p.queries, p.keys, written);
    rules.alibi_slopes = how.alibi_slopes.empty() ? nullptr : how.alibi_slopes.data();
    rules.soft_cap = how.soft_cap;
    const bool modified =
        rules.soft_cap != 0.0F || rules.bias.data != nullptr || rules.alibi_slopes != nullptr;
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

/// Packed sequences: they take the place of the batch.
void check_packing(const options& how, const const_tensor& q, const const_tensor& k, problem& p) {
    if (how.query_starts.empty() && how.key_starts.empty()) { return; }
    if (q.batch() != 1) { refuse("q: batch is ", q.batch(), ", it must be 1 with query_starts"); }
    if (how.query_starts.size() != how.key_starts.size()) {
        refuse("key_starts: ", how.key_starts.size(),
               " values given, it must be as many as query_starts has, ", how.query_starts.size());
    }
    p.queries = check_starts("query_starts", how.query_starts, q.tokens());
    p.keys = check_starts("key_starts", how.key_starts, k.tokens());
    p.batch = static_cast<std::int64_t>(how.query_starts.size()) - 1;
    p.query_starts = how.query_starts;
    p.key_starts = how.key_starts;
}

void check_ranges(const options& how, problem& p, const written_ranges& written) {
    const key_ranges& ranges = how.ranges;
    if ((ranges.first.data == nullptr) != (ranges.last.data == nullptr)) {
        refuse("ranges: only one of first and last given, it must be both or none");
    }
    p.intervals.first_key =
        check_grid("ranges.first", ranges.first, element_type::i32, p, p.queries, 1, written);
    p.intervals.last_key =
        check_grid("ranges.last", ranges.last, element_type::i32, p, p.queries, 1, written);
}

/// Scratch memory grows with the head dimensions, and is counted in 64 bits.
constexpr std::int64_t largest_head_dim = std::int64_t{1} << 40;

void require_countable_head_dim(std::string_view name, std::int64_t head_dim) {
    if (head_dim > largest_head_dim) {
        refuse(name, ": head_dim is ", head_dim, ", it must be at most 2^40");
    }
}

/// Scores are counted in 63 bits, and so are the rows of a key head's group.
void require_countable(const problem& p) {
    std::int64_t count = p.batch;
    for (const std::int64_t factor : {p.heads, p.queries}) {
        if (__builtin_mul_overflow(count, factor, &count)) {
            refuse("q: batch ", p.batch, " x heads ", p.heads, " x tokens ", p.queries,
                   " given, the number of rows must fit in 63 bits");
        }
    }
}

}  // namespace

problem check_arguments(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                        const tensor& out, const options& how) {
    const byte_range q_bytes = check_view("q", q);
    const byte_range k_bytes = check_view("k", k);
    const byte_range v_bytes = check_view("v", v);
    const byte_range out_bytes = check_view("out", out);
    require_countable_head_dim("q", q.head_dim());
    require_countable_head_dim("v", v.head_dim());
    require_extent("k", k, axis::batch, q.batch(), "q");
    require_extent("k", k, axis::head_dim, q.head_dim(), "q");
    require_extent("v", v, axis::batch, k.batch(), "k");
    require_extent("v", v, axis::heads, k.heads(), "k");
    require_extent("v", v, axis::tokens, k.tokens(), "k");
    require_extent("out", out, axis::batch, q.batch(), "q");
    require_extent("out", out, axis::heads, q.heads(), "q");
    require_extent("out", out, axis::tokens, q.tokens(), "q");
    require_extent("out", out, axis::head_dim, v.head_dim(), "v");
    if (k.heads() == 0 ? q.heads() != 0 : q.heads() % k.heads() != 0) {
        refuse("k: ", k.heads(), " heads given, q has ", q.heads(), ", which must be a multiple of it");
    }
    require_distinct_elements("out", out);
    require_apart("out", out_bytes, "q", q_bytes);
    require_apart("out", out_bytes, "k", k_bytes);
    require_apart("out", out_bytes, "v", v_bytes);
    byte_range lse_bytes{};
    if (how.lse.data != nullptr) {
        lse_bytes = check_view("lse", how.lse);
        require_extent("lse", how.lse, axis::batch, q.batch(), "q");
        require_extent("lse", how.lse, axis::heads, q.heads(), "q");
        require_extent("lse", how.lse, axis::tokens, q.tokens(), "q");
        require_extent("lse", how.lse, axis::head_dim, 1, "a tensor with one value per row");
        require_distinct_elements("lse", how.lse);
        require_apart("lse", lse_bytes, "q", q_bytes);
        require_apart("lse", lse_bytes, "k", k_bytes);
        require_apart("lse", lse_bytes, "v", v_bytes);
        require_apart("lse", lse_bytes, "out", out_bytes);
    }
    check_options(how);
    problem p{};
    p.batch = q.batch();
    p.heads = q.heads();
    p.kv_heads = k.heads();
    p.group = k.heads() == 0 ? 1 : q.heads() / k.heads();
    p.queries = q.tokens();
    p.keys = k.tokens();
    check_packing(how, q, k, p);
    p.head_dim = q.head_dim();
    p.value_dim = v.head_dim();
    p.k_layout = {k.strides[2], k.strides[3]};
    p.v_layout = {v.strides[2], v.strides[3]};
    require_countable(p);
    const written_ranges written{out_bytes, lse_bytes};
    p.intervals = check_intervals(how);
    check_ranges(how, p, written);
    p.masks = check_masks(how, p, written);
    p.scores = check_scores(how, p, written);
    require_per_head("sinks", how.sinks, p);
    p.sinks = how.sinks.empty() ? nullptr : how.sinks.data();
    check_key_lengths(how.key_lengths, p);
    p.key_lengths = how.key_lengths;
    p.query_position = how.causal == causal::top_left ? std::optional<std::int64_t>(0) : how.query_position;
    return p;
}

bool are_sequences_alike(const problem& p) { return p.key_lengths.empty() && p.query_starts.empty(); }

sequence sequence_of(const problem& p, std::int64_t index) {
    const auto b = static_cast<std::size_t>(index);
    sequence of{index, 0, p.queries, 0, p.keys, 0};
    if (!p.query_starts.empty()) {
        of = {0,
              p.query_starts[b],
              p.query_starts[b + 1] - p.query_starts[b],
              p.key_starts[b],
              p.key_starts[b + 1] - p.key_starts[b],
              0};
    }
    if (!p.key_lengths.empty()) { of.keys = p.key_lengths[b]; }
    of.query_position = p.query_position.value_or(of.keys - of.queries);
    return of;
}

}  // namespace tilewise

// The checks that an attention_stream makes. Nothing here reads or writes an element.

#include <cstdint>
#include <string_view>

#include "arguments.hpp"
#include "option_checks.hpp"
#include "stream_state.hpp"
#include "views.hpp"

namespace tilewise::detail {

namespace {

constexpr std::int64_t most_keys = std::int64_t{1} << 61;

bool require_absent(bool absent, std::string_view name, std::string_view reason) {
    if (!absent) { return refuse(name, ": given, it must be absent in an attention_stream, which ", reason); }
    return true;
}

bool refuse_what_cannot_be_streamed(const options& how) {
    constexpr std::string_view no_tensors = "has no tensors over all keys";
    constexpr std::string_view one_length = "has as many keys for all batch entries";
    constexpr std::string_view at_the_end = "writes it in finish";
    constexpr std::string_view no_second_look = "looks at keys once";
    const extra_results& extra = how.extra;
    return require_absent(how.mask.data == nullptr, "mask", no_tensors) &&
           require_absent(how.blocks.visible.data == nullptr, "blocks", no_tensors) &&
           require_absent(how.bias.data == nullptr, "bias", no_tensors) &&
           require_absent(how.ranges.first.data == nullptr && how.ranges.last.data == nullptr, "ranges",
                          no_tensors) &&
           require_absent(how.key_lengths.empty(), "key_lengths", one_length) &&
           require_absent(how.key_positions.empty(), "key_positions", one_length) &&
           require_absent(how.block_table.data == nullptr, "block_table", one_length) &&
           require_absent(how.query_starts.empty(), "query_starts", one_length) &&
           require_absent(how.key_starts.empty(), "key_starts", one_length) &&
           require_absent(how.lse.data == nullptr, "lse", at_the_end) &&
           require_absent(extra.row_maximum.data == nullptr, "extra.row_maximum", at_the_end) &&
           require_absent(extra.entropy.data == nullptr, "extra.entropy", no_second_look) &&
           require_absent(extra.key_weights.data == nullptr, "extra.key_weights", no_second_look) &&
           require_absent(extra.weights.data == nullptr && extra.weight_rows.empty(), "extra.weights",
                          no_second_look);
}

/// The first option for which it matters where the queries are among the keys; empty if there is none.
std::string_view option_with_positions(const options& how) {
    if (how.causal == causal::bottom_right) { return "causal::bottom_right"; }
    if (how.window_left.has_value()) { return "window_left"; }
    if (how.window_right.has_value()) { return "window_right"; }
    if (how.attention_chunk != 0) { return "attention_chunk"; }
    if (!how.documents.empty()) { return "documents"; }
    if (!how.alibi_slopes.empty()) { return "alibi_slopes"; }
    if (how.score_function.call != nullptr) { return "score_function"; }
    return {};
}

bool find_position_of_queries(const options& how, const stream_sizes& sizes, problem& p) {
    if (p.is_top_left) {
        p.query_position = p.key_position;
    } else if (!p.query_position.has_value() && sizes.total_keys.has_value()) {
        p.query_position = p.key_position + *sizes.total_keys - p.queries;
    } else if (!p.query_position.has_value()) {
        const std::string_view option = option_with_positions(how);
        if (!option.empty()) {
            return refuse("total_keys: none given, it must be, or query_position, since ", option,
                          " depends on where the queries are");
        }
        p.query_position = p.key_position;
    }
    return true;
}

bool check_sizes(const const_tensor& q, const stream_sizes& sizes) {
    if (sizes.kv_heads < 0 || (sizes.kv_heads == 0 ? q.heads() != 0 : q.heads() % sizes.kv_heads != 0)) {
        return refuse("kv_heads: ", sizes.kv_heads, " given, q has ", q.heads(), " heads, a multiple of it");
    }
    if (sizes.value_dim < 0) {
        return refuse("value_dim: ", sizes.value_dim, " given, it must be at least 0");
    }
    if (sizes.total_keys.has_value() && (*sizes.total_keys < 0 || *sizes.total_keys > most_keys)) {
        return refuse("total_keys: ", *sizes.total_keys, " given, it must be from 0 to 2^61");
    }
    return true;
}

bool require_size(std::string_view name, const const_tensor& view, axis along, std::int64_t wanted) {
    return require_extent(name, view, along, wanted, "the stream");
}

}  // namespace

bool check_stream(const const_tensor& q, const stream_sizes& sizes, const options& how, problem& p) {
    byte_range q_bytes;
    if (!check_view("q", q, float_types, q_bytes) || !require_countable_head_dim("q", q.head_dim()) ||
        !check_sizes(q, sizes) || !require_countable_head_dim("value_dim", sizes.value_dim) ||
        !refuse_what_cannot_be_streamed(how)) {
        return false;
    }
    p.has_results = true;  // or finish may want some
    p.batch = p.batch_entries = q.batch();
    p.queries = p.query_tokens = q.tokens();
    p.heads = q.heads();
    p.kv_heads = sizes.kv_heads;
    p.group = sizes.kv_heads == 0 ? 1 : q.heads() / sizes.kv_heads;
    p.head_dim = q.head_dim();
    p.value_dim = sizes.value_dim;
    p.k_layout = {p.head_dim, 1, element_type::f32, 0, 0, 0, 0};
    p.v_layout = {p.value_dim, 1, element_type::f32, 0, 0, 0, 0};
    p.q_type = q.type;
    p.out_type = element_type::f32;
    memory_map memory;
    return require_countable(p) && memory.read("q", q_bytes) && check_options(how, memory, p) &&
           find_position_of_queries(how, sizes, p);
}

bool check_piece(const stream_state& s, const const_tensor& k, const const_tensor& v) {
    byte_range k_bytes;
    byte_range v_bytes;
    byte_range k_scales;
    byte_range v_scales;
    memory_map memory;
    if (!check_view("k", k, key_value_types, k_bytes) || !check_view("v", v, key_value_types, v_bytes) ||
        !check_scales("k", "k.scales", k, k_scales) || !check_scales("v", "v.scales", v, v_scales) ||
        !memory.read("k", k_bytes) || !memory.read("v", v_bytes) || !memory.read("k.scales", k_scales) ||
        !memory.read("v.scales", v_scales) || !check_workspace(s.how, memory) ||
        !require_size("k", k, axis::batch, s.sizes.batch) ||
        !require_size("k", k, axis::heads, s.sizes.kv_heads) ||
        !require_size("k", k, axis::head_dim, s.sizes.head_dim) ||
        !require_size("v", v, axis::batch, s.sizes.batch) ||
        !require_size("v", v, axis::heads, s.sizes.kv_heads) ||
        !require_extent("v", v, axis::tokens, k.tokens(), "k") ||
        !require_size("v", v, axis::head_dim, s.sizes.value_dim)) {
        return false;
    }
    const std::int64_t most = s.total_keys.value_or(most_keys) - s.keys;
    if (k.tokens() > most) {
        return refuse("k: tokens is ", k.tokens(), ", it must be at most ", most, " after ", s.keys,
                      " keys of ", s.total_keys.has_value() ? "total_keys" : "at most 2^61");
    }
    return true;
}

bool check_stream_results(const stream_state& s, const stream_results& into) {
    if (s.total_keys.value_or(s.keys) != s.keys) {
        return refuse("total_keys: ", *s.total_keys, " given, ", s.keys, " keys added, it must be as many");
    }
    memory_map memory;
    byte_range q_bytes;
    byte_range out_bytes;
    const std::array<std::int64_t, 4> per_row = {s.sizes.batch, s.sizes.heads, s.sizes.queries, 1};
    return check_view("q", s.q, float_types, q_bytes) && memory.read("q", q_bytes) &&
           check_view("out", into.out, float_types, out_bytes) &&
           require_size("out", into.out, axis::batch, s.sizes.batch) &&
           require_size("out", into.out, axis::heads, s.sizes.heads) &&
           require_size("out", into.out, axis::tokens, s.sizes.queries) &&
           require_size("out", into.out, axis::head_dim, s.sizes.value_dim) &&
           require_distinct_elements("out", into.out) && memory.write("out", out_bytes) &&
           check_result("lse", into.lse, element_type::f32, per_row, memory) &&
           check_result("row_maximum", into.row_maximum, element_type::f32, per_row, memory) &&
           check_workspace(s.how, memory);
}

}  // namespace tilewise::detail

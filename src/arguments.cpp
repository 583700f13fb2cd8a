// See arguments.hpp. Nothing here reads or writes an element.

#include "arguments.hpp"

#include <cstddef>
#include <string_view>

#include "kernels.hpp"
#include "option_checks.hpp"
#include "token_places.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

/// Scratch memory grows with the head dimensions, and is counted in 64 bits.
constexpr std::int64_t largest_head_dim = std::int64_t{1} << 40;

/// The memory of the arguments that every call has.
struct argument_bytes {
    byte_range q;
    byte_range k;
    byte_range v;
    byte_range k_scales;
    byte_range v_scales;
    byte_range out;
};

/// f64 is for all of q, k, v and out, or for none.
bool check_f64_views(const const_tensor& k, const const_tensor& v, const tensor& out, argument_bytes& bytes) {
    if (!has_f64_kernels()) {
        return refuse("q: element type f64 given, this library was built without it (TILEWISE_F64)");
    }
    return check_view("k", k, element_type::f64, bytes.k) && check_view("v", v, element_type::f64, bytes.v) &&
           check_view("out", out, element_type::f64, bytes.out);
}

bool check_views(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                 argument_bytes& bytes) {
    if (!check_view("q", q, query_types, bytes.q)) { return false; }
    if (q.type == element_type::f64) { return check_f64_views(k, v, out, bytes); }
    return check_view("k", k, key_value_types, bytes.k) && check_view("v", v, key_value_types, bytes.v) &&
           check_scales("k", "k.scales", k, bytes.k_scales) &&
           check_scales("v", "v.scales", v, bytes.v_scales) && check_view("out", out, float_types, bytes.out);
}

bool check_overlap(const argument_bytes& bytes, memory_map& memory) {
    return memory.read("q", bytes.q) && memory.read("k", bytes.k) && memory.read("v", bytes.v) &&
           memory.read("k.scales", bytes.k_scales) && memory.read("v.scales", bytes.v_scales) &&
           memory.write("out", bytes.out);
}

/// The sizes that the tensors must share. In pages, the batch of k and v is another.
bool check_sizes(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                 const options& how) {
    const bool is_paged = how.block_table.data != nullptr;
    const bool fits = require_countable_head_dim("q", q.head_dim()) &&
                      require_countable_head_dim("v", v.head_dim()) &&
                      (is_paged || require_extent("k", k, axis::batch, q.batch(), "q")) &&
                      require_extent("k", k, axis::head_dim, q.head_dim(), "q") &&
                      require_extent("v", v, axis::batch, k.batch(), "k") &&
                      require_extent("v", v, axis::heads, k.heads(), "k") &&
                      require_extent("v", v, axis::tokens, k.tokens(), "k") &&
                      require_extent("out", out, axis::batch, q.batch(), "q") &&
                      require_extent("out", out, axis::heads, q.heads(), "q") &&
                      require_extent("out", out, axis::tokens, q.tokens(), "q") &&
                      require_extent("out", out, axis::head_dim, v.head_dim(), "v");
    if (fits && (k.heads() == 0 ? q.heads() != 0 : q.heads() % k.heads() != 0)) {
        return refuse("k: ", k.heads(), " heads given, q has ", q.heads(),
                      ", which must be a multiple of it");
    }
    return fits;
}

}  // namespace

bool require_countable_head_dim(std::string_view name, std::int64_t head_dim) {
    if (head_dim > largest_head_dim) {
        return refuse(name, ": head_dim is ", head_dim, ", it must be at most 2^40");
    }
    return true;
}

bool require_countable(const problem& p) {
    std::int64_t count = p.batch;
    for (const std::int64_t factor : {p.heads, p.queries}) {
        if (__builtin_mul_overflow(count, factor, &count)) {
            return refuse("q: batch ", p.batch, " x heads ", p.heads, " x tokens ", p.queries,
                          " given, the number of rows must fit in 63 bits");
        }
    }
    return true;
}

bool check_arguments(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                     const options& how, problem& p) {
    argument_bytes bytes;
    memory_map memory;
    if (!check_views(q, k, v, out, bytes) || !check_sizes(q, k, v, out, how) ||
        !require_distinct_elements("out", out) || !check_overlap(bytes, memory)) {
        return false;
    }
    p = {};
    p.batch = q.batch();
    p.batch_entries = q.batch();
    p.query_tokens = q.tokens();
    p.heads = q.heads();
    p.kv_heads = k.heads();
    p.group = k.heads() == 0 ? 1 : q.heads() / k.heads();
    p.queries = q.tokens();
    p.keys = k.tokens();
    if (!check_packing(how, q, k, p) || !check_pages(how, k, memory, p)) { return false; }
    p.head_dim = q.head_dim();
    p.value_dim = v.head_dim();
    p.k_layout = layout_of(with_sound_strides(k));
    p.v_layout = layout_of(with_sound_strides(v));
    p.real = q.type == element_type::f64 ? element_type::f64 : element_type::f32;
    p.q_type = q.type;
    p.out_type = out.type;
    if (!require_countable(p) || !check_results(how, q, k, memory, p) || !check_options(how, memory, p)) {
        return false;
    }
    p.has_results = has_results(out, how, p);
    return true;
}

std::int64_t count_chunks(const problem& p) {
    if (p.keys == 0) { return 0; }
    if (!p.key_positions.empty()) { return (p.keys + 2 * contract::chunk_keys - 2) / contract::chunk_keys; }
    return (p.key_position + p.keys - 1) / contract::chunk_keys - p.key_position / contract::chunk_keys + 1;
}

bool are_sequences_alike(const problem& p) {
    return p.key_lengths.empty() && p.query_starts.empty() && p.key_positions.empty();
}

std::int64_t padded_keys(const problem& p, std::int64_t index) {
    const auto b = static_cast<std::size_t>(index);
    return p.key_starts.empty() ? p.keys : p.key_starts[b + 1] - p.key_starts[b];
}

sequence sequence_of(const problem& p, std::int64_t index) {
    const auto b = static_cast<std::size_t>(index);
    sequence of{index, 0, p.queries, 0, padded_keys(p, index), p.key_position, 0};
    if (!p.query_starts.empty()) {
        of.batch_entry = 0;
        of.first_query = p.query_starts[b];
        of.queries = p.query_starts[b + 1] - p.query_starts[b];
        of.first_key = p.key_starts.empty() ? 0 : p.key_starts[b];
    }
    if (!p.key_positions.empty()) { of.key_position = p.key_positions[b]; }
    if (!p.key_lengths.empty()) { of.keys = p.key_lengths[b]; }
    const std::int64_t last_sees_last = of.key_position + of.keys - of.queries;
    of.query_position = p.is_top_left ? of.key_position : p.query_position.value_or(last_sees_last);
    return of;
}

}  // namespace tilewise

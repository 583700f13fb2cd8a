// See onnx_arguments.hpp.

#include "onnx_arguments.hpp"

#include <cmath>
#include <cstddef>
#include <string_view>

#include "onnx_views.hpp"
#include "views.hpp"

namespace tilewise::onnx {

namespace {

void check_flags(const attributes& set) {
    if (set.is_causal != 0 && set.is_causal != 1) {
        refuse("is_causal: ", set.is_causal, " given, it must be 0 or 1");
    }
    if (set.qk_matmul_output_mode < 0 || set.qk_matmul_output_mode > 3) {
        refuse("qk_matmul_output_mode: ", set.qk_matmul_output_mode, " given, it must be from 0 to 3");
    }
    const std::int64_t precision = set.softmax_precision.value_or(1);
    if (precision != 1 && precision != 10 && precision != 11 && precision != 16) {
        refuse("softmax_precision: ", precision,
               " given, it must be 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16)");
    }
}

void check_heads(const head_count& heads) {
    if (heads.value.value_or(1) < 1) {
        refuse(heads.name, ": ", *heads.value, " given, it must be at least 1");
    }
}

std::optional<std::int64_t> window_of(std::string_view name, std::int64_t size) {
    if (size < -1) { refuse(name, ": ", size, " given, it must be at least 0, or -1 for an open side"); }
    return size == -1 ? std::nullopt : std::optional<std::int64_t>(size);
}

/// The options that attributes alone decide.
options options_of(const attributes& set, const resources& use) {
    check_flags(set);
    if (!(set.softcap >= 0.0F) || !std::isfinite(set.softcap)) {
        refuse("softcap: ", set.softcap, " given, it must be finite and positive, or 0 for none");
    }
    options how;
    how.scale = set.scale;
    how.soft_cap = set.softcap;
    how.causal = set.is_causal != 0 ? causal::bottom_right : causal::none;
    how.window_left = window_of("left_window_size", set.left_window_size);
    how.window_right = window_of("right_window_size", set.right_window_size);
    how.threads = use.threads;
    how.scratch_budget = use.scratch_budget;
    return how;
}

void take_new_tokens(const inputs& given, const head_count& q_heads, const head_count& kv_heads, call& c) {
    c.q = heads_view("Q", given.q, q_heads);
    require_rank("K", given.k, given.q.shape.size(), "as Q's");
    require_rank("V", given.v, given.q.shape.size(), "as Q's");
    c.k = heads_view("K", given.k, kv_heads);
    c.v = heads_view("V", given.v, kv_heads);
    require_extent("K", c.k, axis::batch, c.q.batch(), "Q");
    require_extent("K", c.k, axis::head_dim, c.q.head_dim(), "Q");
    require_extent("V", c.v, axis::batch, c.k.batch(), "K");
    require_extent("V", c.v, axis::heads, c.k.heads(), "K");
    require_extent("V", c.v, axis::tokens, c.k.tokens(), "K");
    if (c.k.heads() == 0 ? c.q.heads() != 0 : c.q.heads() % c.k.heads() != 0) {
        refuse("K: ", c.k.heads(), " heads given, Q has ", c.q.heads(), ", which must be a multiple of it");
    }
}

void require_both(std::string_view name, bool is_given, std::string_view other_name, bool is_other_given) {
    if (is_given != is_other_given) {
        refuse(is_given ? other_name : name, ": not given, ", is_given ? name : other_name,
               " is, it must be both or none");
    }
}

/// The view of a past or present, [batch, heads, tokens, head_dim] with the sizes of the new tokens.
template <class Void>
basic_tensor<Void> cache_view(std::string_view name, const basic_array<Void>& from, const const_tensor& like,
                              std::string_view like_name) {
    require_rank(name, from, 4, "");
    const basic_tensor<Void> view = heads_view(name, from, {});
    require_extent(name, view, axis::batch, like.batch(), like_name);
    require_extent(name, view, axis::heads, like.heads(), like_name);
    require_extent(name, view, axis::head_dim, like.head_dim(), like_name);
    return view;
}

void take_past(const inputs& given, call& c) {
    require_both("past_key", given.past_key.has_value(), "past_value", given.past_value.has_value());
    c.keys = c.k.tokens();
    if (!given.past_key.has_value()) { return; }
    c.past_key = cache_view("past_key", *given.past_key, c.k, "K");
    c.past_value = cache_view("past_value", *given.past_value, c.v, "V");
    require_extent("past_value", c.past_value, axis::tokens, c.past_key.tokens(), "past_key");
    if (__builtin_add_overflow(c.keys, c.past_key.tokens(), &c.keys)) {
        refuse("past_key: tokens is ", c.past_key.tokens(), ", with those of K it must fit in 63 bits");
    }
}

/// What decides the offset of causal masks and windows: the past, or the lengths.
void take_key_lengths(const inputs& given, const outputs& wanted, call& c, memory_map& memory) {
    if (!given.nonpad_kv_seqlen.has_value()) {
        c.how.query_position = c.past_key.tokens();
        return;
    }
    if (given.past_key.has_value() || wanted.present_key.has_value() || wanted.present_value.has_value()) {
        refuse("nonpad_kv_seqlen: given together with ", given.past_key.has_value() ? "past" : "present",
               ", it must be without past and present");
    }
    const auto lengths = elements_of<std::int64_t>("nonpad_kv_seqlen", *given.nonpad_kv_seqlen,
                                                   data_type::int64, c.q.batch(), "one for each batch entry");
    for (const std::int64_t length : lengths) {
        if (length < 0 || length > c.keys) {
            refuse("nonpad_kv_seqlen: ", length, " given, it must be from 0 to ", c.keys, ", the keys");
        }
    }
    c.how.key_lengths = lengths;
    memory.read("nonpad_kv_seqlen", bytes_of(lengths));
}

void take_mask(const inputs& given, call& c, memory_map& memory) {
    c.reached_keys = c.keys;
    if (!given.attn_mask.has_value()) { return; }
    const const_array& from = *given.attn_mask;
    const bool is_boolean = from.type == data_type::boolean;
    if (!is_boolean && from.type != data_type::float32) {
        refuse("attn_mask: element type ", name_of(from.type), " given, it must be boolean or float32");
    }
    const element_type type = is_boolean ? element_type::boolean : element_type::f32;
    const const_tensor view = aligned_view("attn_mask", from, type);
    for (std::size_t a = 0; a < 3; ++a) {
        if (view.extents[a] != 1 && view.extents[a] != c.q.extents[a]) {
            refuse("attn_mask: ", axis_names[a], " is ", view.extents[a], ", it must be ", c.q.extents[a],
                   " or 1");
        }
    }
    c.reached_keys = view.extents[3];
    if (c.reached_keys > c.keys) {
        refuse("attn_mask: last extent is ", c.reached_keys, ", it must be at most ", c.keys, ", the keys");
    }
    for (const std::int64_t length : c.how.key_lengths) {
        if (length > c.reached_keys) {
            refuse("attn_mask: last extent is ", c.reached_keys, ", it must be at least ", length,
                   ", given in nonpad_kv_seqlen");
        }
    }
    (is_boolean ? c.how.mask : c.how.bias) = view;
    memory.read("attn_mask", check_view("attn_mask", view, type));
}

void take_sinks(const inputs& given, call& c, memory_map& memory) {
    if (!given.head_sink.has_value()) { return; }
    c.how.sinks = elements_of<float>("head_sink", *given.head_sink, data_type::float32, c.q.heads(),
                                     "one for each query head");
    memory.read("head_sink", bytes_of(c.how.sinks));
}

void add_output(std::string_view name, const tensor& view, memory_map& memory) {
    require_distinct_elements(name, view);
    memory.write(name, check_view(name, view, element_type::f32));
}

std::optional<tensor> take_present(std::string_view name, const std::optional<array>& wanted, const call& c,
                                   const const_tensor& like, std::string_view like_name, memory_map& memory) {
    if (!wanted.has_value()) { return std::nullopt; }
    const tensor view = cache_view(name, *wanted, like, like_name);
    require_extent(name, view, axis::tokens, c.keys, "past and K together");
    add_output(name, view, memory);
    return view;
}

void take_outputs(const inputs& given, const outputs& wanted, const head_count& q_heads, call& c,
                  memory_map& memory) {
    require_rank("Y", wanted.y, given.q.shape.size(), "as Q's");
    c.y = heads_view("Y", wanted.y, q_heads);
    require_extent("Y", c.y, axis::batch, c.q.batch(), "Q");
    require_extent("Y", c.y, axis::heads, c.q.heads(), "Q");
    require_extent("Y", c.y, axis::tokens, c.q.tokens(), "Q");
    require_extent("Y", c.y, axis::head_dim, c.v.head_dim(), "V");
    add_output("Y", c.y, memory);
    require_both("present_key", wanted.present_key.has_value(), "present_value",
                 wanted.present_value.has_value());
    c.present_key = take_present("present_key", wanted.present_key, c, c.k, "K", memory);
    c.present_value = take_present("present_value", wanted.present_value, c, c.v, "V", memory);
    if (!wanted.qk_matmul_output.has_value()) { return; }
    require_rank("qk_matmul_output", *wanted.qk_matmul_output, 4, "");
    c.qk = heads_view("qk_matmul_output", *wanted.qk_matmul_output, {});
    require_extent("qk_matmul_output", *c.qk, axis::batch, c.q.batch(), "Q");
    require_extent("qk_matmul_output", *c.qk, axis::heads, c.q.heads(), "Q");
    require_extent("qk_matmul_output", *c.qk, axis::tokens, c.q.tokens(), "Q");
    if (c.qk->extents[3] != c.keys) {
        refuse("qk_matmul_output: last extent is ", c.qk->extents[3], ", it must be ", c.keys, ", the keys");
    }
    add_output("qk_matmul_output", *c.qk, memory);
}

/// Keys or values may be in their place in the present already; only then may they overlap it.
void add_tokens(std::string_view name, const const_tensor& tokens, const std::optional<tensor>& present,
                std::int64_t first, memory_map& memory) {
    if (present.has_value() && is_in_place(tokens, present->slice(axis::tokens, first, tokens.tokens()))) {
        return;
    }
    memory.read(name, check_view(name, tokens, element_type::f32));
}

}  // namespace

bool is_in_place(const const_tensor& part, const const_tensor& whole) {
    if (part.data != whole.data || part.extents != whole.extents) { return false; }
    for (std::size_t a = 0; a < 4; ++a) {
        if (part.extents[a] > 1 && part.strides[a] != whole.strides[a]) { return false; }
    }
    return true;
}

call check_arguments(const inputs& given, const attributes& set, const outputs& wanted,
                     const resources& use) {
    const head_count q_heads{"q_num_heads", set.q_num_heads};
    const head_count kv_heads{"kv_num_heads", set.kv_num_heads};
    check_heads(q_heads);
    check_heads(kv_heads);
    call c{};
    memory_map memory;
    c.how = options_of(set, use);
    c.qk_mode = set.qk_matmul_output_mode;
    take_new_tokens(given, q_heads, kv_heads, c);
    take_past(given, c);
    take_key_lengths(given, wanted, c, memory);
    take_mask(given, c, memory);
    take_sinks(given, c, memory);
    take_outputs(given, wanted, q_heads, c, memory);
    const std::int64_t past = c.past_key.tokens();
    memory.read("Q", check_view("Q", c.q, element_type::f32));
    add_tokens("K", c.k, c.present_key, past, memory);
    add_tokens("V", c.v, c.present_value, past, memory);
    add_tokens("past_key", c.past_key, c.present_key, 0, memory);
    add_tokens("past_value", c.past_value, c.present_value, 0, memory);
    return c;
}

}  // namespace tilewise::onnx

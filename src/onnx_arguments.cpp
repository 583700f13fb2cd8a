// See onnx_arguments.hpp.

#include "onnx_arguments.hpp"

#include <cmath>
#include <cstddef>
#include <string_view>

#include "onnx_views.hpp"
#include "views.hpp"

namespace tilewise::onnx {

namespace {

bool check_flags(const attributes& set) {
    if (set.is_causal != 0 && set.is_causal != 1) {
        return refuse("is_causal: ", set.is_causal, " given, it must be 0 or 1");
    }
    if (set.qk_matmul_output_mode < 0 || set.qk_matmul_output_mode > 3) {
        return refuse("qk_matmul_output_mode: ", set.qk_matmul_output_mode, " given, it must be from 0 to 3");
    }
    const std::int64_t precision = set.softmax_precision.value_or(1);
    if (precision != 1 && precision != 10 && precision != 11 && precision != 16) {
        return refuse("softmax_precision: ", precision,
                      " given, it must be 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16)");
    }
    return true;
}

bool check_heads(const head_count& heads) {
    if (heads.value.value_or(1) < 1) {
        return refuse(heads.name, ": ", *heads.value, " given, it must be at least 1");
    }
    return true;
}

bool find_window(std::string_view name, std::int64_t size, std::optional<std::int64_t>& window) {
    if (size < -1) {
        return refuse(name, ": ", size, " given, it must be at least 0, or -1 for an open side");
    }
    window = size == -1 ? std::nullopt : std::optional<std::int64_t>(size);
    return true;
}

/// The options that attributes alone decide.
bool find_options(const attributes& set, const resources& use, options& how) {
    if (!check_flags(set)) { return false; }
    if (!(set.softcap >= 0.0F) || !std::isfinite(set.softcap)) {
        return refuse("softcap: ", set.softcap, " given, it must be finite and positive, or 0 for none");
    }
    how.scale = set.scale;
    how.soft_cap = set.softcap;
    how.causal = set.is_causal != 0 ? causal::bottom_right : causal::none;
    how.threads = use.threads;
    how.scratch_budget = use.scratch_budget;
    return find_window("left_window_size", set.left_window_size, how.window_left) &&
           find_window("right_window_size", set.right_window_size, how.window_right);
}

bool take_new_tokens(const inputs& given, const head_count& q_heads, const head_count& kv_heads, call& c) {
    if (!make_heads_view("Q", given.q, q_heads, c.q) ||
        !require_rank("K", given.k, given.q.shape.size(), "as Q's") ||
        !require_rank("V", given.v, given.q.shape.size(), "as Q's") ||
        !make_heads_view("K", given.k, kv_heads, c.k) || !make_heads_view("V", given.v, kv_heads, c.v) ||
        !require_extent("K", c.k, axis::batch, c.q.batch(), "Q") ||
        !require_extent("K", c.k, axis::head_dim, c.q.head_dim(), "Q") ||
        !require_extent("V", c.v, axis::batch, c.k.batch(), "K") ||
        !require_extent("V", c.v, axis::heads, c.k.heads(), "K") ||
        !require_extent("V", c.v, axis::tokens, c.k.tokens(), "K")) {
        return false;
    }
    if (c.k.heads() == 0 ? c.q.heads() != 0 : c.q.heads() % c.k.heads() != 0) {
        return refuse("K: ", c.k.heads(), " heads given, Q has ", c.q.heads(),
                      ", which must be a multiple of it");
    }
    return true;
}

bool require_both(std::string_view name, bool is_given, std::string_view other_name, bool is_other_given) {
    if (is_given != is_other_given) {
        return refuse(is_given ? other_name : name, ": not given, ", is_given ? name : other_name,
                      " is, it must be both or none");
    }
    return true;
}

/// The view of a past or present, [batch, heads, tokens, head_dim] with the sizes of the new tokens.
template <class Void>
bool make_cache_view(std::string_view name, const basic_array<Void>& from, const const_tensor& like,
                     std::string_view like_name, basic_tensor<Void>& view) {
    return require_rank(name, from, 4, "") && make_heads_view(name, from, {}, view) &&
           require_extent(name, view, axis::batch, like.batch(), like_name) &&
           require_extent(name, view, axis::heads, like.heads(), like_name) &&
           require_extent(name, view, axis::head_dim, like.head_dim(), like_name);
}

bool take_past(const inputs& given, call& c) {
    if (!require_both("past_key", given.past_key.has_value(), "past_value", given.past_value.has_value())) {
        return false;
    }
    c.keys = c.k.tokens();
    if (!given.past_key.has_value()) { return true; }
    if (!make_cache_view("past_key", *given.past_key, c.k, "K", c.past_key) ||
        !make_cache_view("past_value", *given.past_value, c.v, "V", c.past_value) ||
        !require_extent("past_value", c.past_value, axis::tokens, c.past_key.tokens(), "past_key")) {
        return false;
    }
    if (__builtin_add_overflow(c.keys, c.past_key.tokens(), &c.keys)) {
        return refuse("past_key: tokens is ", c.past_key.tokens(),
                      ", with those of K it must fit in 63 bits");
    }
    return true;
}

/// What decides the offset of causal masks and windows: the past, or the lengths.
bool take_key_lengths(const inputs& given, const outputs& wanted, call& c, memory_map& memory) {
    if (!given.nonpad_kv_seqlen.has_value()) {
        c.how.query_position = c.past_key.tokens();
        return true;
    }
    if (given.past_key.has_value() || wanted.present_key.has_value() || wanted.present_value.has_value()) {
        return refuse("nonpad_kv_seqlen: given together with ",
                      given.past_key.has_value() ? "past" : "present",
                      ", it must be without past and present");
    }
    std::span<const std::int64_t> lengths;
    if (!find_elements("nonpad_kv_seqlen", *given.nonpad_kv_seqlen, data_type::int64, c.q.batch(),
                       "one for each batch entry", lengths)) {
        return false;
    }
    for (const std::int64_t length : lengths) {
        if (length < 0 || length > c.keys) {
            return refuse("nonpad_kv_seqlen: ", length, " given, it must be from 0 to ", c.keys,
                          ", the keys");
        }
    }
    c.how.key_lengths = lengths;
    return memory.read("nonpad_kv_seqlen", bytes_of(lengths));
}

bool take_mask(const inputs& given, call& c, memory_map& memory) {
    c.reached_keys = c.keys;
    if (!given.attn_mask.has_value()) { return true; }
    const const_array& from = *given.attn_mask;
    const bool is_boolean = from.type == data_type::boolean;
    if (!is_boolean && from.type != data_type::float32) {
        return refuse("attn_mask: element type ", name_of(from.type),
                      " given, it must be boolean or float32");
    }
    const element_type type = is_boolean ? element_type::boolean : element_type::f32;
    const_tensor view;
    if (!make_aligned_view("attn_mask", from, type, view)) { return false; }
    for (std::size_t a = 0; a < 3; ++a) {
        if (view.extents[a] != 1 && view.extents[a] != c.q.extents[a]) {
            return refuse("attn_mask: ", axis_names[a], " is ", view.extents[a], ", it must be ",
                          c.q.extents[a], " or 1");
        }
    }
    c.reached_keys = view.extents[3];
    if (c.reached_keys > c.keys) {
        return refuse("attn_mask: last extent is ", c.reached_keys, ", it must be at most ", c.keys,
                      ", the keys");
    }
    for (const std::int64_t length : c.how.key_lengths) {
        if (length > c.reached_keys) {
            return refuse("attn_mask: last extent is ", c.reached_keys, ", it must be at least ", length,
                          ", given in nonpad_kv_seqlen");
        }
    }
    (is_boolean ? c.how.mask : c.how.bias) = view;
    byte_range bytes;
    return check_view("attn_mask", view, type, bytes) && memory.read("attn_mask", bytes);
}

bool take_sinks(const inputs& given, call& c, memory_map& memory) {
    return !given.head_sink.has_value() ||
           (find_elements("head_sink", *given.head_sink, data_type::float32, c.q.heads(),
                          "one for each query head", c.how.sinks) &&
            memory.read("head_sink", bytes_of(c.how.sinks)));
}

bool add_output(std::string_view name, const tensor& view, memory_map& memory) {
    byte_range bytes;
    return require_distinct_elements(name, view) && check_view(name, view, element_type::f32, bytes) &&
           memory.write(name, bytes);
}

bool take_present(std::string_view name, const std::optional<array>& wanted, const call& c,
                  const const_tensor& like, std::string_view like_name, memory_map& memory,
                  std::optional<tensor>& present) {
    if (!wanted.has_value()) { return true; }
    present.emplace();
    return make_cache_view(name, *wanted, like, like_name, *present) &&
           require_extent(name, *present, axis::tokens, c.keys, "past and K together") &&
           add_output(name, *present, memory);
}

bool take_scores(const outputs& wanted, call& c, memory_map& memory) {
    if (!wanted.qk_matmul_output.has_value()) { return true; }
    constexpr std::string_view name = "qk_matmul_output";
    c.qk.emplace();
    if (!require_rank(name, *wanted.qk_matmul_output, 4, "") ||
        !make_heads_view(name, *wanted.qk_matmul_output, {}, *c.qk) ||
        !require_extent(name, *c.qk, axis::batch, c.q.batch(), "Q") ||
        !require_extent(name, *c.qk, axis::heads, c.q.heads(), "Q") ||
        !require_extent(name, *c.qk, axis::tokens, c.q.tokens(), "Q")) {
        return false;
    }
    if (c.qk->extents[3] != c.keys) {
        return refuse(name, ": last extent is ", c.qk->extents[3], ", it must be ", c.keys, ", the keys");
    }
    return add_output(name, *c.qk, memory);
}

bool take_outputs(const inputs& given, const outputs& wanted, const head_count& q_heads, call& c,
                  memory_map& memory) {
    return require_rank("Y", wanted.y, given.q.shape.size(), "as Q's") &&
           make_heads_view("Y", wanted.y, q_heads, c.y) &&
           require_extent("Y", c.y, axis::batch, c.q.batch(), "Q") &&
           require_extent("Y", c.y, axis::heads, c.q.heads(), "Q") &&
           require_extent("Y", c.y, axis::tokens, c.q.tokens(), "Q") &&
           require_extent("Y", c.y, axis::head_dim, c.v.head_dim(), "V") && add_output("Y", c.y, memory) &&
           require_both("present_key", wanted.present_key.has_value(), "present_value",
                        wanted.present_value.has_value()) &&
           take_present("present_key", wanted.present_key, c, c.k, "K", memory, c.present_key) &&
           take_present("present_value", wanted.present_value, c, c.v, "V", memory, c.present_value) &&
           take_scores(wanted, c, memory);
}

/// Keys or values may be in their place in the present already; only then may they overlap it.
bool add_tokens(std::string_view name, const const_tensor& tokens, const std::optional<tensor>& present,
                std::int64_t first, memory_map& memory) {
    if (present.has_value() && is_in_place(tokens, present->slice(axis::tokens, first, tokens.tokens()))) {
        return true;
    }
    byte_range bytes;
    return check_view(name, tokens, element_type::f32, bytes) && memory.read(name, bytes);
}

bool check_overlap(const call& c, memory_map& memory) {
    const std::int64_t past = c.past_key.tokens();
    return add_tokens("Q", c.q, std::nullopt, 0, memory) &&
           add_tokens("K", c.k, c.present_key, past, memory) &&
           add_tokens("V", c.v, c.present_value, past, memory) &&
           add_tokens("past_key", c.past_key, c.present_key, 0, memory) &&
           add_tokens("past_value", c.past_value, c.present_value, 0, memory);
}

}  // namespace

bool is_in_place(const const_tensor& part, const const_tensor& whole) {
    if (part.data != whole.data || part.extents != whole.extents) { return false; }
    for (std::size_t a = 0; a < 4; ++a) {
        if (part.extents[a] > 1 && part.strides[a] != whole.strides[a]) { return false; }
    }
    return true;
}

bool check_arguments(const inputs& given, const attributes& set, const outputs& wanted, const resources& use,
                     call& c) {
    const head_count q_heads{"q_num_heads", set.q_num_heads};
    const head_count kv_heads{"kv_num_heads", set.kv_num_heads};
    memory_map memory;
    c.qk_mode = set.qk_matmul_output_mode;
    return check_heads(q_heads) && check_heads(kv_heads) && find_options(set, use, c.how) &&
           take_new_tokens(given, q_heads, kv_heads, c) && take_past(given, c) &&
           take_key_lengths(given, wanted, c, memory) && take_mask(given, c, memory) &&
           take_sinks(given, c, memory) && take_outputs(given, wanted, q_heads, c, memory) &&
           check_overlap(c, memory);
}

}  // namespace tilewise::onnx

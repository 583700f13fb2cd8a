#include "onnx_oracle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tilewise/reference.hpp>

namespace tilewise_tests {
namespace {

namespace onnx = tilewise::onnx;
using count = std::int64_t;
using place = std::array<count, 4>;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Reads an element by its indices, of which there are as many as axes.
template <class Value>
Value read(const onnx::const_array& from, std::span<const count> at) {
    count offset = 0;
    count step = 1;
    for (std::size_t a = from.shape.size(); a-- > 0; step *= from.shape[a]) {
        offset += at[a] * (from.strides.empty() ? step : from.strides[a]);
    }
    Value value;
    std::memcpy(&value, static_cast<const std::byte*>(from.data) + offset * static_cast<count>(sizeof value),
                sizeof value);
    return value;
}

/// Element (b, h, t, i) of an array [B, H, T, D] or [B, T, H * D].
float read_row(const onnx::const_array& from, const place& at, count dim) {
    if (from.shape.size() == 4) { return read<float>(from, at); }
    const std::array<count, 3> flat = {at[0], at[2], at[1] * dim + at[3]};
    return read<float>(from, flat);
}

struct call_sizes {
    count batch, heads, kv_heads, queries, past, keys, key_dim, value_dim;
};

count last_of(const onnx::const_array& array, count heads) {
    const count last = array.shape.back();
    return array.shape.size() == 4 ? last : heads == 0 ? 0 : last / heads;
}

call_sizes sizes_of(const onnx::inputs& given, const onnx::attributes& set) {
    const bool has_4 = given.q.shape.size() == 4;
    call_sizes s{};
    s.batch = given.q.shape[0];
    s.heads = has_4 ? given.q.shape[1] : *set.q_num_heads;
    s.kv_heads = has_4 ? given.k.shape[1] : *set.kv_num_heads;
    s.queries = given.q.shape[has_4 ? 2 : 1];
    s.past = given.past_key ? given.past_key->shape[2] : 0;
    s.keys = s.past + given.k.shape[has_4 ? 2 : 1];
    s.key_dim = last_of(given.q, s.heads);
    s.value_dim = last_of(given.v, s.kv_heads);
    return s;
}

/// Past and new tokens of one batch entry, [heads, tokens, dim].
std::vector<float> gather(const onnx::const_array* past, const onnx::const_array& added, count b, count heads,
                          count past_tokens, count tokens, count dim) {
    std::vector<float> all;
    for (count h = 0; h < heads; ++h) {
        for (count t = 0; t < tokens; ++t) {
            for (count i = 0; i < dim; ++i) {
                all.push_back(t < past_tokens ? read<float>(*past, place{b, h, t, i})
                                              : read_row(added, {b, h, t - past_tokens, i}, dim));
            }
        }
    }
    return all;
}

/// What attn_mask says of each score: 0, something to add, or -inf.
float mask_at(const onnx::const_array& mask, const place& at) {
    const std::size_t rank = mask.shape.size();
    if (at[3] >= mask.shape[rank - 1]) { return -infinity; }
    place index{};
    for (std::size_t a = 0; a < rank; ++a) {
        const count wanted = at[4 - rank + a];
        index[a] = a + 1 < rank && mask.shape[a] == 1 ? 0 : wanted;
    }
    const std::span<const count> indices(index.data(), rank);
    if (mask.type == onnx::data_type::boolean) {
        return read<std::uint8_t>(mask, indices) != 0 ? 0.0F : -infinity;
    }
    const auto value = read<float>(mask, indices);
    return value < -2.3e38F ? -infinity : value;
}

/// One batch entry.
struct entry {
    std::vector<float> q, k, v, mask;
    std::vector<std::uint8_t>
        visible;  ///< instead of the mask, if it is boolean: scores are not changed then
    count length;
    count offset;
};

entry gather_entry(const onnx::inputs& given, const call_sizes& s, count b) {
    entry made{gather(nullptr, given.q, b, s.heads, 0, s.queries, s.key_dim),
               gather(given.past_key ? &*given.past_key : nullptr, given.k, b, s.kv_heads, s.past, s.keys,
                      s.key_dim),
               gather(given.past_value ? &*given.past_value : nullptr, given.v, b, s.kv_heads, s.past, s.keys,
                      s.value_dim),
               {},
               {},
               s.keys,
               s.past};
    if (given.nonpad_kv_seqlen) {
        made.length = read<count>(*given.nonpad_kv_seqlen, std::array{b});
        made.offset = made.length - s.queries;
    }
    for (count n = 0; given.attn_mask && n < s.heads * s.queries * s.keys; ++n) {
        made.mask.push_back(
            mask_at(*given.attn_mask, {b, n / (s.queries * s.keys), n / s.keys % s.queries, n % s.keys}));
    }
    for (const float term : made.mask) { made.visible.push_back(term == -infinity ? 0 : 1); }
    return made;
}

tilewise::options options_of(const onnx::inputs& given, const onnx::attributes& set, const call_sizes& s,
                             const entry& of, const std::vector<float>& sinks) {
    tilewise::options how;
    how.scale = set.scale;
    how.soft_cap = set.softcap;
    how.query_position = of.offset;
    if (set.is_causal != 0) { how.causal = tilewise::causal::bottom_right; }
    if (set.left_window_size >= 0) { how.window_left = set.left_window_size; }
    if (set.right_window_size >= 0) { how.window_right = set.right_window_size; }
    how.key_lengths = {&of.length, 1};
    if (given.attn_mask && given.attn_mask->type == onnx::data_type::boolean) {
        const auto bytes = tilewise::element_type::boolean;
        how.mask = {
            of.visible.data(), bytes, {1, s.heads, s.queries, s.keys}, {0, s.queries * s.keys, s.keys, 1}};
    } else if (given.attn_mask) {
        how.bias = tilewise::bhsd(of.mask.data(), 1, s.heads, s.queries, s.keys);
    }
    how.sinks = sinks;
    return how;
}

bool is_visible(const onnx::attributes& set, const entry& of, count i, count j) {
    const count position = of.offset + i;
    return j < of.length && (set.is_causal == 0 || j <= position) &&
           (set.left_window_size < 0 || j >= position - std::min(set.left_window_size, count{1} << 40)) &&
           (set.right_window_size < 0 || j <= position + std::min(set.right_window_size, count{1} << 40));
}

/// qk_matmul_output before the softmax, without a soft cap.
void append_scores(const onnx::attributes& set, const call_sizes& s, const entry& of,
                   std::vector<float>& to) {
    const float usual =
        s.key_dim == 0 ? 1.0F : static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.key_dim)));
    const float scale = set.scale.value_or(usual);
    for (count n = 0; n < s.heads * s.queries * s.keys; ++n) {
        const count h = n / (s.queries * s.keys);
        const count i = n / s.keys % s.queries;
        const count j = n % s.keys;
        const float* const query = of.q.data() + (h * s.queries + i) * s.key_dim;
        const float* const key = of.k.data() + (h / (s.heads / s.kv_heads) * s.keys + j) * s.key_dim;
        float score = 0.0F;
        for (count x = 0; x < s.key_dim; ++x) { score = std::fma(key[x], query[x], score); }
        score *= scale;
        if (set.qk_matmul_output_mode == 2) {
            const float mask = of.mask.empty() ? 0.0F : of.mask[static_cast<std::size_t>(n)];
            score = mask == -infinity || !is_visible(set, of, i, j) ? -infinity
                    : mask == 0.0F                                  ? score
                                                                    : score + mask;
        }
        to.push_back(score);
    }
}

bool is_same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

onnx_results expect_onnx(const onnx::inputs& given, const onnx::attributes& set) {
    const call_sizes s = sizes_of(given, set);
    std::vector<float> sinks;
    for (count h = 0; given.head_sink && h < s.heads; ++h) {
        sinks.push_back(read<float>(*given.head_sink, std::array{h}));
    }
    std::vector<count> rows;
    for (count i = 0; i < s.queries; ++i) { rows.push_back(i); }
    onnx_results made{{s.batch, s.heads, s.queries, s.value_dim}, {}, {}};
    for (count b = 0; b < s.batch; ++b) {
        const entry of = gather_entry(given, s, b);
        tilewise::options how = options_of(given, set, s, of, sinks);
        std::vector<float> y(static_cast<std::size_t>(s.heads * s.queries * s.value_dim));
        std::vector<float> weights(static_cast<std::size_t>(s.heads * s.queries * s.keys));
        if (!weights.empty()) { how.extra.weight_rows = rows; }
        how.extra.weights = tilewise::bhsd(weights.data(), 1, s.heads, s.queries, s.keys);
        tilewise::reference::attention(tilewise::bhsd(of.q.data(), 1, s.heads, s.queries, s.key_dim),
                                       tilewise::bhsd(of.k.data(), 1, s.kv_heads, s.keys, s.key_dim),
                                       tilewise::bhsd(of.v.data(), 1, s.kv_heads, s.keys, s.value_dim),
                                       tilewise::bhsd(y.data(), 1, s.heads, s.queries, s.value_dim), how);
        made.y.insert(made.y.end(), y.begin(), y.end());
        if (set.qk_matmul_output_mode == 3) {
            made.qk.insert(made.qk.end(), weights.begin(), weights.end());
        } else if (set.softcap == 0.0F) {
            append_scores(set, s, of, made.qk);
        }
    }
    return made;
}

std::string difference_from(const onnx_results& want, const onnx::outputs& got) {
    const auto [batch, heads, queries, dim] = want.extents;
    for (count n = 0; n < batch * heads * queries * dim; ++n) {
        const place at = {n / (heads * queries * dim), n / (queries * dim) % heads, n / dim % queries,
                          n % dim};
        const float value = read_row(got.y, at, dim);
        if (std::bit_cast<std::uint32_t>(value) !=
            std::bit_cast<std::uint32_t>(want.y[static_cast<std::size_t>(n)])) {
            return "y differs from the reference's";
        }
    }
    if (!got.qk_matmul_output) { return {}; }
    const auto& shape = got.qk_matmul_output->shape;
    for (std::size_t n = 0; n < want.qk.size(); ++n) {
        const auto number = static_cast<count>(n);
        const place at = {number / (shape[1] * shape[2] * shape[3]),
                          number / (shape[2] * shape[3]) % shape[1], number / shape[3] % shape[2],
                          number % shape[3]};
        if (!is_same(read<float>(*got.qk_matmul_output, at), want.qk[n])) {
            return "qk_matmul_output differs from the reference's";
        }
    }
    return {};
}

}  // namespace tilewise_tests

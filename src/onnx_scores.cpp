// See onnx_scores.hpp.

#include "onnx_scores.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

namespace tilewise::onnx {

namespace {

constexpr float masked_score = -std::numeric_limits<float>::infinity();

/// The address of key 0's score, in the row of a query token.
float* row_of(const tensor& scores, std::int64_t b, std::int64_t h, std::int64_t i) {
    return static_cast<float*>(scores.data) + b * scores.strides[0] + h * scores.strides[1] +
           i * scores.strides[2];
}

/// Called by several threads, for different tiles.
void copy_tile(void* to, const score_tile& tile) noexcept {
    const tensor& scores = *static_cast<const tensor*>(to);
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        float* row = row_of(scores, tile.batch, tile.head, tile.first_query + i);
        for (std::int64_t j = 0; j < tile.keys; ++j) {
            row[(tile.first_key + j) * scores.strides[3]] =
                tile.scores[i * tile.query_stride + j * tile.key_stride];
        }
    }
}

struct key_range {
    std::int64_t first;
    std::int64_t last;
};

/// The keys that lengths, causal mask and windows let a query token see.
key_range visible_range(const call& c, std::int64_t b, std::int64_t i) {
    const options& how = c.how;
    key_range range{0, c.reached_keys};
    if (!how.key_lengths.empty()) { range.last = how.key_lengths[static_cast<std::size_t>(b)]; }
    const std::int64_t position = how.query_position.value_or(range.last - c.q.tokens()) + i;
    if (how.window_left.has_value() && *how.window_left < position) {
        range.first = position - *how.window_left;
    }
    if (how.causal != causal::none) { range.last = std::min(range.last, position + 1); }
    if (how.window_right.has_value() && *how.window_right < range.last - position) {
        range.last = position + *how.window_right + 1;
    }
    range.last = std::max<std::int64_t>(range.last, 0);
    range.first = std::min(range.first, range.last);
    return range;
}

/// Whether the boolean mask, if there is one, shows key j.
class mask_row {
public:
    mask_row(const const_tensor& mask, std::int64_t b, std::int64_t h, std::int64_t i) {
        if (mask.data == nullptr) { return; }
        const std::int64_t at[] = {b, h, i};
        row_ = static_cast<const unsigned char*>(mask.data);
        for (std::size_t a = 0; a < 3; ++a) {
            if (mask.extents[a] > 1) { row_ += at[a] * mask.strides[a]; }
        }
        stride_ = mask.strides[3];
    }
    [[nodiscard]] bool shows(std::int64_t j) const { return row_ == nullptr || row_[j * stride_] != 0; }

private:
    const unsigned char* row_ = nullptr;
    std::int64_t stride_ = 0;
};

template <class Function>
void for_each_row(const tensor& scores, const Function& function) {
    for (std::int64_t b = 0; b < scores.batch(); ++b) {
        for (std::int64_t h = 0; h < scores.heads(); ++h) {
            for (std::int64_t i = 0; i < scores.tokens(); ++i) { function(b, h, i); }
        }
    }
}

void mask_scores(const call& c) {
    const tensor& scores = *c.qk;
    for_each_row(scores, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
        const key_range range = visible_range(c, b, i);
        const mask_row mask(c.how.mask, b, h, i);
        float* row = row_of(scores, b, h, i);
        for (std::int64_t j = 0; j < c.keys; ++j) {
            if (j < range.first || j >= range.last || !mask.shows(j)) {
                row[j * scores.strides[3]] = masked_score;
            }
        }
    });
}

}  // namespace

bool add_weights(const call& c, heap_array<std::int64_t>& rows, options& how) {
    if (c.qk->data == nullptr) { return true; }  // there is no weight
    if (!rows.allocate({c.q.tokens()})) { return false; }
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    how.extra.weight_rows = {rows.data(), rows.size()};
    how.extra.weights = c.qk->slice(axis::head_dim, 0, c.reached_keys);
    return true;
}

void finish_weights(const call& c) {
    for_each_row(*c.qk, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
        float* row = row_of(*c.qk, b, h, i);
        for (std::int64_t j = c.reached_keys; j < c.keys; ++j) { row[j * c.qk->strides[3]] = 0.0F; }
    });
}

bool write_scores(const call& c, const const_tensor& k) {
    const bool is_masked = c.qk_mode == 2;
    options how;
    how.scale = c.how.scale;
    if (c.qk_mode >= 1) { how.soft_cap = c.how.soft_cap; }
    if (is_masked) { how.bias = c.how.bias; }
    how.threads = c.how.threads;
    how.scratch_budget = c.how.scratch_budget;
    tensor scores = *c.qk;
    how.score_function = {copy_tile, &scores};

    // No value is wanted: one number stands for all of them.
    constexpr float value = 0.0F;
    const const_tensor values{&value, element_type::f32, {k.batch(), k.heads(), k.tokens(), 1}, {0, 0, 0, 0}};
    heap_array<float> ignored;
    if (!ignored.allocate({c.q.batch(), c.q.heads(), c.q.tokens()})) { return false; }
    const tensor out = row_values(ignored.data(), c.q.batch(), c.q.heads(), c.q.tokens());
    // The bias reaches no further than the mask.
    const std::int64_t keys = is_masked ? c.reached_keys : c.keys;
    if (!try_attention(c.q, k.slice(axis::tokens, 0, keys), values.slice(axis::tokens, 0, keys), out, how)
             .is_ok()) {
        return false;
    }
    if (is_masked) { mask_scores(c); }
    return true;
}

}  // namespace tilewise::onnx

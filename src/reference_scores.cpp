#include "reference_scores.hpp"

#include <cmath>

#include "contract.hpp"
#include "reference_elements.hpp"
#include "reference_math.hpp"

namespace tilewise::reference {

std::int64_t index_in(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token,
                      std::int64_t i) {
    return batch * x.strides[0] + head * x.strides[1] + token * x.strides[2] + i * x.strides[3];
}

namespace {

/// The value of an element of k or v, with its scale if it has one.
float value_of(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token,
               std::int64_t i) {
    const float number = read_element(x.data, x.type, index_in(x, batch, head, token, i));
    if (x.scales == nullptr) { return number; }
    const auto& s = x.scale_strides;
    return x.scales[batch * s[0] + head * s[1] + token * s[2] + i * s[3]] * number;
}

std::int64_t index_in(const kernels::grid& g, const head_of& h, std::int64_t row, std::int64_t column) {
    return h.batch * g.batch_stride + h.head * g.head_stride + row * g.query_stride + column * g.key_stride;
}

template <class Element>
Element grid_element(const kernels::grid& g, const head_of& h, std::int64_t row, std::int64_t column) {
    return static_cast<const Element*>(g.data)[index_in(g, h, row, column)];
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// Whether a query at position p and key j are in the same document.
bool same_document(const kernels::interval_rules& rules, std::int64_t p, std::int64_t j) {
    for (std::int64_t d = 0; d + 1 < rules.document_count; ++d) {
        const std::int64_t first = rules.documents[d];
        const std::int64_t last = rules.documents[d + 1];
        if (first <= p && p < last && first <= j && j < last) { return true; }
    }
    return false;
}

/// The masks that are intervals.
bool is_in_intervals(const kernels::interval_rules& rules, const head_of& h, std::int64_t i, std::int64_t j) {
    const std::int64_t p = h.of.query_position + i;
    const bool near = (!rules.causal || j <= p) && p - j <= rules.window_left && j - p <= rules.window_right;
    if (!near && j >= rules.prefix) { return false; }
    if (rules.attention_chunk > 0 &&
        floor_divide(p, rules.attention_chunk) != floor_divide(j, rules.attention_chunk)) {
        return false;
    }
    if (rules.documents != nullptr && !same_document(rules, p, j)) { return false; }
    return rules.first_key.data == nullptr || (grid_element<std::int32_t>(rules.first_key, h, i, 0) <= j &&
                                               j < grid_element<std::int32_t>(rules.last_key, h, i, 0));
}

/// The masks that are tensors.
bool is_in_tensors(const problem& p, const head_of& h, std::int64_t i, std::int64_t j) {
    const kernels::grid& mask = p.masks.visible;
    if (mask.data != nullptr && p.masks.storage == kernels::mask_storage::bytes &&
        grid_element<std::uint8_t>(mask, h, i, j) == 0) {
        return false;
    }
    if (mask.data != nullptr && p.masks.storage == kernels::mask_storage::bits) {
        const std::int64_t bit = index_in(mask, h, i, j);
        const std::int64_t byte = floor_divide(bit, 8);
        if ((static_cast<const std::uint8_t*>(mask.data)[byte] >> (bit - 8 * byte) & 1) == 0) {
            return false;
        }
    }
    return p.masks.blocks.data == nullptr ||
           grid_element<std::uint8_t>(p.masks.blocks, h, i / p.masks.block_queries, j / p.masks.block_keys) !=
               0;
}

float bias_of(const kernels::score_rules& rules, const head_of& h, std::int64_t i, std::int64_t j) {
    return read_element(rules.bias.data, rules.bias_type, index_in(rules.bias, h, i, j));
}

/// Step 2: a dot product to a score.
float modify(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, float s) {
    const kernels::score_rules& rules = p.scores;
    float t = rules.multiply ? s * rules.scale : s;
    if (rules.soft_cap != 0.0F) { t = rules.soft_cap * tanh_of(s * rules.soft_cap_factor); }
    if (rules.bias.data != nullptr) { t = t + bias_of(rules, h, i, j); }
    if (rules.alibi_slopes != nullptr) {
        const std::int64_t position = h.of.key_position + j;
        const std::int64_t start = position / contract::chunk_keys * contract::chunk_keys;
        const float d =
            static_cast<float>(h.of.query_position + i - start) - static_cast<float>(position - start);
        t = std::fma(rules.alibi_slopes[h.head], -std::fabs(d), t);
    }
    return t;
}

}  // namespace

void copy_head(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t first,
               std::int64_t tokens, float* rows) {
    for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < x.head_dim(); ++i) { *rows++ = value_of(x, batch, head, first + t, i); }
    }
}

void copy_keys(const const_tensor& x, const problem& p, const sequence& of, std::int64_t index,
               std::int64_t head, float* rows) {
    if (p.pages == nullptr) { return copy_head(x, of.batch_entry, head, of.first_key, of.keys, rows); }
    for (std::int64_t j = 0; j < of.keys; ++j) {
        const std::int32_t page = p.pages[index * p.sequence_stride + j / p.page_keys * p.table_stride];
        copy_head(x, page, head, j % p.page_keys, 1, rows + j * x.head_dim());
    }
}

bool is_visible(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, float t) {
    return is_in_intervals(p.intervals, h, i, h.of.key_position + j) && is_in_tensors(p, h, i, j) &&
           (p.scores.bias.data == nullptr || bias_of(p.scores, h, i, j) != -infinity) &&
           (p.scores.function == nullptr || t != -infinity);
}

void score_head(const problem& p, const head_of& h, const float* q_rows, const float* k_rows, float* scores) {
    const auto product = p.arithmetic == arithmetic::exact ? dot : dot_of_pairs;
    for (std::int64_t i = 0; i < h.of.queries; ++i) {
        for (std::int64_t j = 0; j < h.of.keys; ++j) {
            const float s = product(k_rows + j * p.head_dim, q_rows + i * p.head_dim, p.head_dim);
            scores[i * p.keys + j] = modify(p, h, i, j, s);
        }
        if (p.scores.function != nullptr && h.of.keys > 0) {
            p.scores.function(p.scores.function_context,
                              {h.batch, h.head, i, 1, h.of.query_position + i, h.of.key_position, h.of.keys,
                               scores + i * p.keys, p.keys, 1});
        }
    }
}

}  // namespace tilewise::reference

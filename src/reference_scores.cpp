#include "reference_scores.hpp"

#include <cmath>
#include <type_traits>

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
template <class Real>
Real value_of(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token,
              std::int64_t i) {
    const Real number = read_real<Real>(x.data, x.type, index_in(x, batch, head, token, i));
    if (x.scales == nullptr) { return number; }
    const auto& s = x.scale_strides;
    return static_cast<Real>(x.scales[batch * s[0] + head * s[1] + token * s[2] + i * s[3]]) * number;
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

template <class Real>
Real bias_of(const kernels::score_rules& rules, const head_of& h, std::int64_t i, std::int64_t j) {
    return read_real<Real>(rules.bias.data, rules.bias_type, index_in(rules.bias, h, i, j));
}

/// Step 2: a dot product to a score.
template <class Real>
Real modify(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, Real s) {
    const kernels::score_rules& rules = p.scores;
    const auto soft_cap = static_cast<Real>(rules.soft_cap);
    Real t = rules.multiply ? s * static_cast<Real>(rules.scale) : s;
    if (soft_cap != 0) { t = soft_cap * tanh_of(s * static_cast<Real>(rules.soft_cap_factor)); }
    if (rules.bias.data != nullptr) { t = t + bias_of<Real>(rules, h, i, j); }
    if (rules.alibi_slopes != nullptr) {
        const std::int64_t position = h.of.key_position + j;
        const std::int64_t start = position / contract::chunk_keys * contract::chunk_keys;
        const Real d =
            static_cast<Real>(h.of.query_position + i - start) - static_cast<Real>(position - start);
        t = std::fma(static_cast<Real>(rules.alibi_slopes[h.head]), -std::fabs(d), t);
    }
    return t;
}

}  // namespace

template <class Real>
void copy_head(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t first,
               std::int64_t tokens, Real* rows) {
    for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < x.head_dim(); ++i) {
            *rows++ = value_of<Real>(x, batch, head, first + t, i);
        }
    }
}

template <class Real>
void copy_keys(const const_tensor& x, const problem& p, const sequence& of, std::int64_t index,
               std::int64_t head, Real* rows) {
    if (p.pages == nullptr) { return copy_head(x, of.batch_entry, head, of.first_key, of.keys, rows); }
    for (std::int64_t j = 0; j < of.keys; ++j) {
        const std::int32_t page = p.pages[index * p.sequence_stride + j / p.page_keys * p.table_stride];
        copy_head(x, page, head, j % p.page_keys, 1, rows + j * x.head_dim());
    }
}

template <class Real>
bool is_visible(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, Real t) {
    return is_in_intervals(p.intervals, h, i, h.of.key_position + j) && is_in_tensors(p, h, i, j) &&
           (p.scores.bias.data == nullptr || bias_of<Real>(p.scores, h, i, j) != -infinity<Real>)&&(
               p.scores.function == nullptr || t != -infinity<Real>);
}

template <class Real>
void score_head(const problem& p, const head_of& h, const Real* q_rows, const Real* k_rows, Real* scores) {
    for (std::int64_t i = 0; i < h.of.queries; ++i) {
        for (std::int64_t j = 0; j < h.of.keys; ++j) {
            const Real s = dot(p.arithmetic, k_rows + j * p.head_dim, q_rows + i * p.head_dim, p.head_dim);
            scores[i * p.keys + j] = modify(p, h, i, j, s);
        }
        if constexpr (std::is_same_v<Real, float>) {
            if (p.scores.function == nullptr || h.of.keys == 0) { continue; }
            p.scores.function(p.scores.function_context,
                              {h.batch, h.head, i, 1, h.of.query_position + i, h.of.key_position, h.of.keys,
                               scores + i * p.keys, p.keys, 1});
        }
    }
}

template void copy_head(const const_tensor&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*);
template void copy_head(const const_tensor&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, double*);
template void copy_keys(const const_tensor&, const problem&, const sequence&, std::int64_t, std::int64_t,
                        float*);
template void copy_keys(const const_tensor&, const problem&, const sequence&, std::int64_t, std::int64_t,
                        double*);
template bool is_visible(const problem&, const head_of&, std::int64_t, std::int64_t, float);
template bool is_visible(const problem&, const head_of&, std::int64_t, std::int64_t, double);
template void score_head(const problem&, const head_of&, const float*, const float*, float*);
template void score_head(const problem&, const head_of&, const double*, const double*, double*);

}  // namespace tilewise::reference

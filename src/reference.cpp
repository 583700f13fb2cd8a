// The oracle: the naive formulation in scalar C++, in the contract's arithmetic (contract.hpp). It shares
// the constants with the kernels and nothing else. Read it from bottom to top: attention() is the formula.

#include <tilewise/reference.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "arguments.hpp"
#include "contract.hpp"
#include "float_environment.hpp"
#include "reference_elements.hpp"

// std::fma is a call into the C library on the x86-64 baseline: compile the loops for FMA3 as well. The
// result is the same, since a fused multiply-add has one answer.
#if defined(__x86_64__) && defined(__ELF__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__)
#    define TILEWISE_FMA_CLONES __attribute__((target_clones("default", "arch=haswell")))
#else
#    define TILEWISE_FMA_CLONES
#endif

namespace tilewise::reference {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Where an element is, counted in elements.
std::int64_t index_in(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token,
                      std::int64_t i) {
    return batch * x.strides[0] + head * x.strides[1] + token * x.strides[2] + i * x.strides[3];
}

/// The value of an element of k or v, with its scale if it has one.
float value_of(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token,
               std::int64_t i) {
    const float number = read_element(x.data, x.type, index_in(x, batch, head, token, i));
    if (x.scales == nullptr) { return number; }
    const auto& s = x.scale_strides;
    return x.scales[batch * s[0] + head * s[1] + token * s[2] + i * s[3]] * number;
}

/// Rows of one head, side by side: [tokens][head_dim].
std::vector<float> copy_head(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t first,
                             std::int64_t tokens) {
    std::vector<float> rows(static_cast<std::size_t>(tokens * x.head_dim()));
    for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < x.head_dim(); ++i) {
            rows[static_cast<std::size_t>(t * x.head_dim() + i)] = value_of(x, batch, head, first + t, i);
        }
    }
    return rows;
}

/// Step 1: the dot product of a key and a query.
TILEWISE_FMA_CLONES
float dot(const float* key, const float* query, std::int64_t head_dim) {
    float s = 0.0F;
    for (std::int64_t i = 0; i < head_dim; ++i) { s = std::fma(key[i], query[i], s); }
    return s;
}

/// 2^k for an integer k; +0 below `lowest`.
float power_of_two(float k, float lowest) {
    if (std::isnan(k)) { return k; }
    return k < lowest ? 0.0F : std::ldexp(1.0F, static_cast<int>(k));
}

/// 2^f for |f| <= 1.
TILEWISE_FMA_CLONES
float exp2_of(float f) {
    float p = 0.0F;
    for (int i = 5; i >= 0; --i) { p = std::fma(f, p, contract::exp2_coefficients[i]); }
    return std::fma(f, p, 1.0F);
}

/// Step 3: the weight of one score.
TILEWISE_FMA_CLONES
float weight(float t, float c, float chunk_maximum) {
    float r = std::fma(t, c, contract::rounding_shift) - contract::rounding_shift;
    if (std::fabs(chunk_maximum) >= contract::careful_maximum) { r = std::nearbyint(t * c); }
    float f = std::fma(t, c, -r);
    if (std::fabs(chunk_maximum) >= contract::careful_maximum) {
        f = f > 1.0F ? 1.0F : f < -1.0F ? -1.0F : f;
    }
    const float exponent = r - chunk_maximum;
    if (exponent < contract::weight_min_exponent) { return 0.0F; }
    return exp2_of(f) * power_of_two(exponent, contract::weight_min_exponent);
}

/// o += p v for one key.
TILEWISE_FMA_CLONES
void add_value(const float* value, float p, std::int64_t value_dim, float* o) {
    for (std::int64_t x = 0; x < value_dim; ++x) { o[x] = std::fma(value[x], p, o[x]); }
}

/// The running state of a row (step 4).
struct row_state {
    float m = -infinity;
    float l = 0.0F;
    std::vector<float> o;
    float largest = -infinity;   ///< score
    std::vector<float> weights;  ///< p_j; 0 where the key is masked
    std::vector<float> chunk_m;  ///< m_c of each key's chunk
};

TILEWISE_FMA_CLONES
void fold(row_state& row, float chunk_m, float chunk_l, const std::vector<float>& chunk_o) {
    const float m = std::max(row.m, chunk_m);
    const float base = m == -infinity ? 0.0F : m;
    const float a = power_of_two(row.m - base, contract::fold_min_exponent);
    const float b = power_of_two(chunk_m - base, contract::fold_min_exponent);
    row.l = std::fma(row.l, a, chunk_l * b);
    for (std::size_t x = 0; x < row.o.size(); ++x) { row.o[x] = std::fma(row.o[x], a, chunk_o[x] * b); }
    row.m = m;
}

TILEWISE_FMA_CLONES
float log2_of(float value) {
    const auto bits = std::bit_cast<std::int32_t>(value);
    const std::int32_t exponent = (bits - static_cast<std::int32_t>(contract::sqrt_half_bits)) >> 23;
    const float u = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0F;
    float p = contract::log2_coefficients[9];
    for (int i = 8; i >= 0; --i) { p = std::fma(u, p, contract::log2_coefficients[i]); }
    return std::fma(u, p, static_cast<float>(exponent));
}

/// An element of a result that is always f32.
float& f32_of(const tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token, std::int64_t i) {
    return static_cast<float*>(x.data)[index_in(x, batch, head, token, i)];
}

float canonical(float value) {
    return std::isnan(value) ? std::bit_cast<float>(contract::canonical_nan_bits) : value;
}

/// Step 5: a finished row.
void write_row(const row_state& row, std::int64_t batch, std::int64_t head, std::int64_t token,
               const tensor& out, const tensor& lse) {
    const bool empty = row.l == 0.0F;
    for (std::int64_t x = 0; x < out.head_dim(); ++x) {
        const float value = row.o[static_cast<std::size_t>(x)] / row.l + 0.0F;
        write_element(out.data, out.type, index_in(out, batch, head, token, x),
                      empty ? 0.0F : canonical(value));
    }
    if (lse.data == nullptr) { return; }
    const float log_of_sum = std::isnan(row.l) ? row.l : (row.m + log2_of(row.l)) * contract::ln_2;
    write_element(lse.data, lse.type, index_in(lse, batch, head, token, 0),
                  empty ? -infinity : canonical(log_of_sum));
}

/// One head of one sequence.
struct head_of {
    std::int64_t batch;  ///< number of the sequence
    std::int64_t head;
    sequence of;
};

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

/// Whether query token i sees key token j, whose score is t.
bool is_visible(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, float t) {
    return is_in_intervals(p.intervals, h, i, j) && is_in_tensors(p, h, i, j) &&
           (p.scores.bias.data == nullptr || bias_of(p.scores, h, i, j) != -infinity) &&
           (p.scores.function == nullptr || t != -infinity);
}

TILEWISE_FMA_CLONES
float tanh_of(float value) {
    const float x = std::fabs(value);
    if (std::isnan(x)) { return x; }
    const float square = x * x;
    float p = 0.0F;
    for (int n = 4; n >= 0; --n) { p = std::fma(square, p, contract::tanh_coefficients[n]); }
    if (x < contract::tanh_small) { return std::copysign(std::fma(x * square, p, x), value); }
    if (x >= contract::tanh_large) { return std::copysign(1.0F, value); }
    const float r = std::fma(x, contract::two_log2_e, contract::rounding_shift) - contract::rounding_shift;
    const float f = std::fma(x, contract::two_log2_e_rest, std::fma(x, contract::two_log2_e, -r));
    const float power = exp2_of(f) * power_of_two(r, contract::fold_min_exponent);
    return std::copysign(1.0F - 2.0F / (power + 1.0F), value);
}

/// Step 2: a dot product to a score.
TILEWISE_FMA_CLONES
float modify(const problem& p, const head_of& h, std::int64_t i, std::int64_t j, float s) {
    const kernels::score_rules& rules = p.scores;
    float t = rules.multiply ? s * rules.scale : s;
    if (rules.soft_cap != 0.0F) { t = rules.soft_cap * tanh_of(s * rules.soft_cap_factor); }
    if (rules.bias.data != nullptr) { t = t + bias_of(rules, h, i, j); }
    if (rules.alibi_slopes != nullptr) {
        const std::int64_t start = j / contract::chunk_keys * contract::chunk_keys;
        const float d = static_cast<float>(h.of.query_position + i - start) - static_cast<float>(j - start);
        t = std::fma(rules.alibi_slopes[h.head], -std::fabs(d), t);
    }
    return t;
}

/// Steps 1 and 2: the score matrix of a head, [queries][keys]. Masked keys keep a score that nobody looks at.
void score_head(const problem& p, const head_of& h, const std::vector<float>& q_rows,
                const std::vector<float>& k_rows, std::vector<float>& scores) {
    for (std::int64_t i = 0; i < h.of.queries; ++i) {
        for (std::int64_t j = 0; j < h.of.keys; ++j) {
            const float s = dot(k_rows.data() + j * p.head_dim, q_rows.data() + i * p.head_dim, p.head_dim);
            scores[static_cast<std::size_t>(i * p.keys + j)] = modify(p, h, i, j, s);
        }
        if (p.scores.function != nullptr && h.of.keys > 0) {
            p.scores.function(p.scores.function_context, {h.batch, h.head, i, 1, h.of.query_position + i, 0,
                                                          h.of.keys, scores.data() + i * p.keys, p.keys, 1});
        }
    }
}

/// Steps 3 and 4 for one chunk of a row: keys first .. last - 1.
void add_chunk(const problem& p, const head_of& h, std::int64_t i, std::int64_t first, std::int64_t last,
               const float* scores, const std::vector<float>& v_rows, row_state& row) {
    float largest = -infinity;
    for (std::int64_t j = first; j < last; ++j) {
        if (is_visible(p, h, i, j, scores[j]) && scores[j] > largest) { largest = scores[j]; }
    }
    row.largest = std::max(row.largest, largest);
    const float m = std::ceil(largest * p.scores.exponent);
    float l = 0.0F;
    std::vector<float> o(row.o.size(), 0.0F);
    for (std::int64_t j = first; j < last; ++j) {
        if (!is_visible(p, h, i, j, scores[j])) { continue; }
        const float weight_j = weight(scores[j], p.scores.exponent, m == -infinity ? 0.0F : m);
        l = l + weight_j;
        add_value(v_rows.data() + j * p.value_dim, weight_j, p.value_dim, o.data());
        row.weights[static_cast<std::size_t>(j)] = weight_j;
    }
    std::fill(row.chunk_m.begin() + first, row.chunk_m.begin() + last, m);
    fold(row, m, l, o);
}

/// Step 4: the state before the first chunk.
row_state start_row(const problem& p, const head_of& h) {
    row_state row;
    row.o.assign(static_cast<std::size_t>(p.value_dim), 0.0F);
    row.weights.assign(static_cast<std::size_t>(h.of.keys), 0.0F);
    row.chunk_m.assign(static_cast<std::size_t>(h.of.keys), -infinity);
    if (p.sinks != nullptr) {
        row.m = std::ceil(p.sinks[h.head] * contract::log2_e);
        row.l = weight(p.sinks[h.head], contract::log2_e, row.m == -infinity ? 0.0F : row.m);
    }
    return row;
}

/// Step 6: the final weights of a row, in place.
void finish_weights(row_state& row, const problem& p, const head_of& h, std::int64_t i, const float* scores) {
    const float base = row.m == -infinity ? 0.0F : row.m;
    for (std::int64_t j = 0; j < h.of.keys; ++j) {
        float& w = row.weights[static_cast<std::size_t>(j)];
        const float b =
            power_of_two(row.chunk_m[static_cast<std::size_t>(j)] - base, contract::fold_min_exponent);
        const bool is_zero = row.l == 0.0F || !is_visible(p, h, i, j, scores[j]);
        w = is_zero ? 0.0F : canonical(w * b / row.l + 0.0F);
    }
}

float entropy_of(const std::vector<float>& weights) {
    float e = 0.0F;
    for (std::size_t first = 0; first < weights.size(); first += contract::chunk_keys) {
        float chunk_e = 0.0F;
        for (std::size_t j = first; j < std::min(first + contract::chunk_keys, weights.size()); ++j) {
            if (weights[j] < std::numeric_limits<float>::min()) { continue; }
            chunk_e =
                std::isnan(weights[j]) ? weights[j] : std::fma(weights[j], log2_of(weights[j]), chunk_e);
        }
        e = e + chunk_e;
    }
    return canonical(e * -contract::ln_2 + 0.0F);
}

/// Sums of weights per key over query tokens, in blocks as long as a chunk.
struct key_sums {
    std::vector<float> block;
    std::vector<float> total;
    void fold() {
        for (std::size_t j = 0; j < total.size(); ++j) {
            total[j] = total[j] + block[j];
            block[j] = 0.0F;
        }
    }
};

bool wants_extra(const extra_results& extra) {
    return extra.row_maximum.data != nullptr || extra.entropy.data != nullptr ||
           extra.key_weights.data != nullptr || extra.weights.data != nullptr;
}

/// The results of one row beside the output and lse.
void write_extra(const problem& p, const head_of& h, std::int64_t i, const row_state& row, key_sums& sums,
                 const extra_results& extra) {
    const std::int64_t token = h.of.first_query + i;
    if (extra.row_maximum.data != nullptr) {
        const float largest = row.largest * (p.scores.multiply ? 1.0F : p.scores.scale) + 0.0F;
        f32_of(extra.row_maximum, h.of.batch_entry, h.head, token, 0) =
            canonical(std::isnan(row.l) ? row.l : largest);
    }
    if (extra.entropy.data != nullptr) {
        f32_of(extra.entropy, h.of.batch_entry, h.head, token, 0) = entropy_of(row.weights);
    }
    for (std::int64_t n = 0; n < p.chosen.count; ++n) {
        if (p.chosen.tokens[n] != token) { continue; }
        for (std::int64_t j = 0; j < p.keys; ++j) {
            f32_of(extra.weights, h.of.batch_entry, h.head, n, j) =
                j < h.of.keys ? row.weights[static_cast<std::size_t>(j)] : 0.0F;
        }
    }
    if (p.sum_keys) {
        if (i % contract::chunk_keys == 0) { sums.fold(); }
        for (std::size_t j = 0; j < row.weights.size(); ++j) {
            sums.block[j] = sums.block[j] + row.weights[j];
        }
    }
}

/// Padding has the sum 0.
void write_key_weights(const problem& p, const head_of& h, key_sums& sums, const tensor& to) {
    sums.fold();
    for (std::int64_t j = 0; j < padded_keys(p, h.batch); ++j) {
        f32_of(to, h.of.batch_entry, h.head, 0, h.of.first_key + j) =
            canonical(sums.total[static_cast<std::size_t>(j)]);
    }
}

/// Room for the T x T scores of one head.
std::vector<float> score_matrix(const problem& p) {
    std::size_t count = 0;
    if (__builtin_mul_overflow(static_cast<std::size_t>(p.queries), static_cast<std::size_t>(p.keys),
                               &count) ||
        count > std::vector<float>().max_size()) {
        throw std::bad_alloc();
    }
    return std::vector<float>(count);
}

}  // namespace

void attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
               const options& how) {
    const float_environment standard;
    const problem p = check_arguments(q, k, v, out, how);
    std::vector<float> scores = score_matrix(p);

    for (std::int64_t index = 0; index < p.batch; ++index) {
        const sequence of = sequence_of(p, index);
        for (std::int64_t head = 0; head < p.heads; ++head) {
            const head_of h{index, head, of};
            const std::vector<float> v_rows =
                copy_head(v, of.batch_entry, head / p.group, of.first_key, of.keys);
            score_head(p, h, copy_head(q, of.batch_entry, head, of.first_query, of.queries),
                       copy_head(k, of.batch_entry, head / p.group, of.first_key, of.keys), scores);
            key_sums sums;
            sums.block.assign(static_cast<std::size_t>(p.keys), 0.0F);
            sums.total = sums.block;
            for (std::int64_t i = 0; i < of.queries; ++i) {
                row_state row = start_row(p, h);
                for (std::int64_t first = 0; first < of.keys; first += contract::chunk_keys) {
                    add_chunk(p, h, i, first, std::min(first + contract::chunk_keys, of.keys),
                              scores.data() + i * p.keys, v_rows, row);
                }
                write_row(row, of.batch_entry, head, of.first_query + i, out, how.lse);
                if (!wants_extra(how.extra)) { continue; }
                finish_weights(row, p, h, i, scores.data() + i * p.keys);
                write_extra(p, h, i, row, sums, how.extra);
            }
            if (p.sum_keys) { write_key_weights(p, h, sums, how.extra.key_weights); }
        }
    }
}

}  // namespace tilewise::reference

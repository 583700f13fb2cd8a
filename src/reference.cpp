// The oracle: the naive formulation in scalar C++, in the contract's arithmetic (contract.hpp), which is f32
// or f64: Real. It shares the constants with the kernels and nothing else. Read it from bottom to top:
// attention() is the formula.

#include <tilewise/reference.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "arguments.hpp"
#include "contract.hpp"
#include "cpu.hpp"
#include "float_environment.hpp"
#include "heap_array.hpp"
#include "plan.hpp"
#include "reference_elements.hpp"
#include "reference_math.hpp"
#include "reference_scores.hpp"

namespace tilewise::reference {

namespace {

/// All memory of a call, for the longest sequence.
template <class Real>
struct memory {
    heap_array<Real> scores;  ///< [queries][keys] of one head
    heap_array<Real> q;       ///< [queries][head_dim]
    heap_array<Real> k;       ///< [keys][head_dim]
    heap_array<Real> v;       ///< [keys][value_dim]
    heap_array<Real> o;       ///< of one row
    heap_array<Real> chunk_o;
    heap_array<Real> weights;
    heap_array<Real> chunk_m;
    heap_array<Real> block_sums;  ///< of weights, per key
    heap_array<Real> total_sums;

    [[nodiscard]] bool allocate(const problem& p) {
        if (p.batch == 0 || p.heads == 0) { return true; }
        // The largest comes first: it is the one that cannot be had.
        return (p.queries == 0 || allocate_rows(p)) && block_sums.allocate({p.keys}) &&
               total_sums.allocate({p.keys});
    }
    [[nodiscard]] bool allocate_rows(const problem& p) {
        return scores.allocate({p.queries, p.keys}) && q.allocate({p.queries, p.head_dim}) &&
               k.allocate({p.keys, p.head_dim}) && v.allocate({p.keys, p.value_dim}) &&
               o.allocate({p.value_dim}) && chunk_o.allocate({p.value_dim}) && weights.allocate({p.keys}) &&
               chunk_m.allocate({p.keys});
    }
};

/// The running state of a row (step 4).
template <class Real>
struct row_state {
    Real m = -infinity<Real>;
    Real l = 0;
    std::span<Real> o;
    std::span<Real> chunk_o;         ///< of the chunk that is being added
    Real largest = -infinity<Real>;  ///< score
    std::span<Real> weights;         ///< p_j; 0 where the key is masked
    std::span<Real> chunk_m;         ///< m_c of each key's chunk
};

/// What a maximum of -inf counts as.
template <class Real>
Real base_of(Real m) {
    return m == -infinity<Real> ? 0 : m;
}

template <class Real>
void fold(row_state<Real>& row, Real chunk_m, Real chunk_l) {
    const Real m = std::max(row.m, chunk_m);
    const Real a = power_of_two(row.m - base_of(m), contract::constants<Real>::fold_min_exponent);
    const Real b = power_of_two(chunk_m - base_of(m), contract::constants<Real>::fold_min_exponent);
    row.l = std::fma(row.l, a, chunk_l * b);
    fold_sums(row.o.data(), row.chunk_o.data(), static_cast<std::int64_t>(row.o.size()), a, b);
    row.m = m;
}

/// An element of a result that is of what is computed in.
template <class Real>
Real& real_of(const tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token, std::int64_t i) {
    return static_cast<Real*>(x.data)[index_in(x, batch, head, token, i)];
}

/// Step 5: a finished row.
template <class Real>
void write_row(const row_state<Real>& row, std::int64_t batch, std::int64_t head, std::int64_t token,
               const tensor& out, const tensor& lse) {
    const bool empty = row.l == 0;
    for (std::int64_t x = 0; x < out.head_dim(); ++x) {
        const Real value = row.o[static_cast<std::size_t>(x)] / row.l + 0;
        write_element(out.data, out.type, index_in(out, batch, head, token, x), empty ? 0 : canonical(value));
    }
    if (lse.data == nullptr) { return; }
    const Real log_of_sum =
        std::isnan(row.l) ? row.l : (row.m + log2_of(row.l)) * contract::constants<Real>::ln_2;
    real_of<Real>(lse, batch, head, token, 0) = empty ? -infinity<Real> : canonical(log_of_sum);
}

/// The first key token beyond the chunk of key token j.
std::int64_t chunk_end(const head_of& h, std::int64_t j) {
    return (h.of.key_position + j) / contract::chunk_keys * contract::chunk_keys + contract::chunk_keys -
           h.of.key_position;
}

/// The weights of keys and their values, [keys][value_dim].
template <class Real>
struct weighted_values {
    std::span<Real> weights;
    const Real* v_rows;
    std::int64_t value_dim;
};

/// l_c and o_c, over the keys of first .. last - 1 that are visible.
template <class Real, class IsVisible>
Real sum_chunk(const weighted_values<Real>& of, std::int64_t first, std::int64_t last, IsVisible is_visible,
               Real* chunk_o) {
    Real l = 0;
    for (std::int64_t j = first; j < last; ++j) {
        if (!is_visible(j)) { continue; }
        const Real p = of.weights[static_cast<std::size_t>(j)];
        l = l + p;
        add_value(of.v_rows + j * of.value_dim, p, of.value_dim, chunk_o);
    }
    return l;
}

/// The same by pairs of keys at positions 2 i and 2 i + 1; `first` is at position `position`. A key that is
/// not visible, or not there, has weight and value 0. The weights are rounded to bf16.
template <class IsVisible>
float sum_chunk_by_pairs(const weighted_values<float>& of, std::int64_t first, std::int64_t last,
                         std::int64_t position, IsVisible is_visible, float* chunk_o) {
    float l = 0.0F;
    for (std::int64_t j = first - position % 2; j < last; j += 2) {
        float p[2] = {};
        const float* v[2] = {};
        for (std::int64_t n = 0; n < 2; ++n) {
            if (j + n < first || j + n >= last || !is_visible(j + n)) { continue; }
            float& weight = of.weights[static_cast<std::size_t>(j + n)];
            p[n] = weight = static_cast<float>(bfloat16(weight));
            v[n] = of.v_rows + (j + n) * of.value_dim;
        }
        l = add_products(l, p[0], 1.0F, p[1], 1.0F);
        add_value_pair(v[0], p[0], v[1], p[1], of.value_dim, chunk_o);
    }
    return l;
}

template <class Real, class IsVisible>
Real sum_chunk(arithmetic how, const weighted_values<Real>& of, std::int64_t first, std::int64_t last,
               std::int64_t position, IsVisible is_visible, Real* chunk_o) {
    if constexpr (std::is_same_v<Real, float>) {
        if (how == arithmetic::fastest) {
            return sum_chunk_by_pairs(of, first, last, position, is_visible, chunk_o);
        }
    }
    return sum_chunk(of, first, last, is_visible, chunk_o);
}

/// Steps 3 and 4 for one chunk of a row: keys first .. last - 1.
template <class Real>
void add_chunk(const problem& p, const head_of& h, std::int64_t i, std::int64_t first, std::int64_t last,
               const Real* scores, const Real* v_rows, row_state<Real>& row) {
    const auto c = static_cast<Real>(p.scores.exponent);
    const auto visible = [&](std::int64_t j) { return is_visible(p, h, i, j, scores[j]); };
    Real largest = -infinity<Real>;
    for (std::int64_t j = first; j < last; ++j) {
        if (visible(j) && scores[j] > largest) { largest = scores[j]; }
    }
    row.largest = std::max(row.largest, largest);
    const Real m = std::ceil(largest * c);
    std::fill(row.chunk_o.begin(), row.chunk_o.end(), Real{0});
    for (std::int64_t j = first; j < last; ++j) {
        if (!visible(j)) { continue; }
        row.weights[static_cast<std::size_t>(j)] = weight(p.arithmetic, scores[j], c, base_of(m));
    }
    const weighted_values<Real> values{row.weights, v_rows, p.value_dim};
    const Real l =
        sum_chunk(p.arithmetic, values, first, last, h.of.key_position + first, visible, row.chunk_o.data());
    std::fill(row.chunk_m.begin() + first, row.chunk_m.begin() + last, m);
    fold(row, m, l);
}

/// Step 4: the state before the first chunk.
template <class Real>
row_state<Real> start_row(const problem& p, const head_of& h, memory<Real>& room) {
    const auto keys = static_cast<std::size_t>(h.of.keys);
    row_state<Real> row;
    row.o = {room.o.data(), room.o.size()};
    row.chunk_o = {room.chunk_o.data(), room.chunk_o.size()};
    row.weights = {room.weights.data(), keys};
    row.chunk_m = {room.chunk_m.data(), keys};
    std::fill(row.o.begin(), row.o.end(), Real{0});
    std::fill(row.weights.begin(), row.weights.end(), Real{0});
    std::fill(row.chunk_m.begin(), row.chunk_m.end(), -infinity<Real>);
    if (p.sinks != nullptr) {
        const Real c = contract::constants<Real>::log2_e;
        const auto sink = static_cast<Real>(p.sinks[h.head]);
        row.m = std::ceil(sink * c);
        row.l = weight(p.arithmetic, sink, c, base_of(row.m));
    }
    return row;
}

/// Step 6: the final weights of a row, in place.
template <class Real>
void finish_weights(row_state<Real>& row, const problem& p, const head_of& h, std::int64_t i,
                    const Real* scores) {
    for (std::int64_t j = 0; j < h.of.keys; ++j) {
        Real& w = row.weights[static_cast<std::size_t>(j)];
        const Real b = power_of_two(row.chunk_m[static_cast<std::size_t>(j)] - base_of(row.m),
                                    contract::constants<Real>::fold_min_exponent);
        const bool is_zero = row.l == 0 || !is_visible(p, h, i, j, scores[j]);
        w = is_zero ? 0 : canonical(w * b / row.l + 0);
    }
}

template <class Real>
Real entropy_of(const head_of& h, std::span<const Real> weights) {
    Real e = 0;
    const auto count = static_cast<std::int64_t>(weights.size());
    for (std::int64_t first = 0; first < count; first = chunk_end(h, first)) {
        Real chunk_e = 0;
        for (auto j = static_cast<std::size_t>(first);
             j < static_cast<std::size_t>(std::min(chunk_end(h, first), count)); ++j) {
            if (weights[j] < contract::constants<Real>::smallest_normal) { continue; }
            chunk_e =
                std::isnan(weights[j]) ? weights[j] : std::fma(weights[j], log2_of(weights[j]), chunk_e);
        }
        e = e + chunk_e;
    }
    return canonical(e * -contract::constants<Real>::ln_2 + 0);
}

/// Sums of weights per key over query tokens, in blocks as long as a chunk.
template <class Real>
struct key_sums {
    std::span<Real> block;
    std::span<Real> total;
    void clear() const {
        std::fill(block.begin(), block.end(), Real{0});
        std::fill(total.begin(), total.end(), Real{0});
    }
    void fold() const {
        for (std::size_t j = 0; j < total.size(); ++j) {
            total[j] = total[j] + block[j];
            block[j] = 0;
        }
    }
};

bool wants_extra(const extra_results& extra) {
    return extra.row_maximum.data != nullptr || extra.entropy.data != nullptr ||
           extra.key_weights.data != nullptr || extra.weights.data != nullptr;
}

/// The results of one row beside the output and lse.
template <class Real>
void write_extra(const problem& p, const head_of& h, std::int64_t i, const row_state<Real>& row,
                 key_sums<Real>& sums, const extra_results& extra) {
    const std::int64_t token = h.of.first_query + i;
    if (extra.row_maximum.data != nullptr) {
        const Real natural = p.scores.multiply ? 1 : static_cast<Real>(p.scores.scale);
        const Real largest = row.largest * natural + 0;
        real_of<Real>(extra.row_maximum, h.of.batch_entry, h.head, token, 0) =
            canonical(std::isnan(row.l) ? row.l : largest);
    }
    if (extra.entropy.data != nullptr) {
        real_of<Real>(extra.entropy, h.of.batch_entry, h.head, token, 0) = entropy_of<Real>(h, row.weights);
    }
    for (std::int64_t n = 0; n < p.chosen.count; ++n) {
        if (p.chosen.tokens[n] != token) { continue; }
        for (std::int64_t j = 0; j < p.keys; ++j) {
            real_of<Real>(extra.weights, h.of.batch_entry, h.head, n, j) =
                j < h.of.keys ? row.weights[static_cast<std::size_t>(j)] : 0;
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
template <class Real>
void write_key_weights(const problem& p, const head_of& h, key_sums<Real>& sums, const tensor& to) {
    sums.fold();
    for (std::int64_t j = 0; j < padded_keys(p, h.batch); ++j) {
        real_of<Real>(to, h.of.batch_entry, h.head, 0, h.of.first_key + j) =
            canonical(sums.total[static_cast<std::size_t>(j)]);
    }
}

/// Steps 1 and 2 for one head.
template <class Real>
void prepare_head(const problem& p, const head_of& h, const const_tensor& q, const const_tensor& k,
                  const const_tensor& v, memory<Real>& room) {
    copy_head(q, h.of.batch_entry, h.head, h.of.first_query, h.of.queries, room.q.data());
    copy_keys(k, p, h.of, h.batch, h.head / p.group, room.k.data());
    copy_keys(v, p, h.of, h.batch, h.head / p.group, room.v.data());
    score_head(p, h, room.q.data(), room.k.data(), room.scores.data());
}

/// Real is what is computed in. False if the memory cannot be had.
template <class Real>
bool compute(const problem& p, const const_tensor& q, const const_tensor& k, const const_tensor& v,
             const tensor& out, const options& how) {
    memory<Real> room;
    if (!room.allocate(p)) { return false; }
    key_sums<Real> sums{{room.block_sums.data(), room.block_sums.size()},
                        {room.total_sums.data(), room.total_sums.size()}};
    for (std::int64_t index = 0; index < p.batch; ++index) {
        const sequence of = sequence_of(p, index);
        for (std::int64_t head = 0; head < p.heads; ++head) {
            const head_of h{index, head, of};
            sums.clear();
            if (of.queries > 0) { prepare_head(p, h, q, k, v, room); }
            for (std::int64_t i = 0; i < of.queries; ++i) {
                const Real* const scores = room.scores.data() + i * p.keys;
                row_state<Real> row = start_row(p, h, room);
                for (std::int64_t first = 0; first < of.keys; first = chunk_end(h, first)) {
                    add_chunk(p, h, i, first, std::min(chunk_end(h, first), of.keys), scores, room.v.data(),
                              row);
                }
                write_row(row, of.batch_entry, head, of.first_query + i, out, how.lse);
                if (!wants_extra(how.extra)) { continue; }
                finish_weights(row, p, h, i, scores);
                write_extra(p, h, i, row, sums, how.extra);
            }
            if (p.sum_keys) { write_key_weights(p, h, sums, how.extra.key_weights); }
        }
    }
    return true;
}

}  // namespace

status try_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                     const options& how) noexcept {
    const float_environment standard;
    problem p{};
    if (!check_arguments(q, k, v, out, how, p)) { return status_of(false); }
    isa which{};
    if (p.arithmetic != arithmetic::exact && !find_active_isa(which)) { return status_of(false); }
    p.arithmetic = arithmetic_for(p, which);
    if (!p.has_results) { return {}; }
    const bool is_f64 = p.real == element_type::f64;
    return status_of((is_f64 ? compute<double> : compute<float>)(p, q, k, v, out, how));
}

void attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
               const options& how) {
    raise_unless(reference::try_attention(q, k, v, out, how));
}

}  // namespace tilewise::reference

#include "textbook.hpp"

#include <algorithm>
#include <cmath>

namespace tilewise::cli {

template <class Real>
textbook_row<Real> compute_textbook_row(const input& from, std::int64_t head, std::int64_t token,
                                        std::int64_t keys) {
    const input_spec& s = from.spec;
    const Real scale = 1 / std::sqrt(static_cast<Real>(s.head_dim));
    const std::int64_t kv_head = head / (s.heads / s.kv_heads);
    const float* q = from.q.data() + (head * s.tokens + token) * s.head_dim;
    const float* k = from.k.data() + kv_head * s.tokens * s.head_dim;
    const float* v = from.v.data() + kv_head * s.tokens * s.head_dim;
    std::vector<Real> scores(static_cast<std::size_t>(keys));
    for (Real& score : scores) {
        score = 0;
        for (std::int64_t i = 0; i < s.head_dim; ++i) {
            score += static_cast<Real>(q[i]) * static_cast<Real>(k[i]);
        }
        score *= scale;
        k += s.head_dim;
    }
    const Real largest = *std::max_element(scores.begin(), scores.end());
    Real sum = 0;
    std::vector<Real> out(static_cast<std::size_t>(s.head_dim));
    for (const Real score : scores) {
        const Real weight = std::exp(score - largest);
        sum += weight;
        for (Real& value : out) { value += weight * static_cast<Real>(*v++); }
    }
    for (Real& value : out) { value /= sum; }
    return {out, largest + std::log(sum)};
}

template textbook_row<double> compute_textbook_row(const input&, std::int64_t, std::int64_t, std::int64_t);
template textbook_row<long double> compute_textbook_row(const input&, std::int64_t, std::int64_t,
                                                        std::int64_t);

}  // namespace tilewise::cli

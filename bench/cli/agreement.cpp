#include "agreement.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include <tilewise/reference.hpp>

#include "parallel.hpp"
#include "textbook.hpp"

namespace tilewise::cli {
namespace {

std::int64_t keys_seen(const input_spec& spec, bool causal, std::int64_t token) {
    return causal ? token + 1 : spec.tokens;
}

/// The oracle's output of one query token, [heads, head_dim].
std::vector<float> oracle_row(const input& from, std::int64_t token, std::int64_t keys) {
    const input_spec& s = from.spec;
    std::vector<float> row(static_cast<std::size_t>(s.heads * s.head_dim));
    reference::attention(
        from.q_view().slice(axis::tokens, token, 1), from.k_view().slice(axis::tokens, 0, keys),
        from.v_view().slice(axis::tokens, 0, keys), bhsd(row.data(), 1, s.heads, 1, s.head_dim));
    return row;
}

/// The larger; NaN if one of them is NaN.
double larger(double a, double b) {
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
}

agreement check_token(const input& from, bool causal, const std::vector<float>& out, std::int64_t token) {
    const input_spec& s = from.spec;
    const std::int64_t keys = keys_seen(s, causal, token);
    const std::vector<float> oracle = oracle_row(from, token, keys);
    agreement result;
    result.tokens_checked = 1;
    for (std::int64_t head = 0; head < s.heads; ++head) {
        const textbook_row<double> textbook = compute_textbook_row<double>(from, head, token, keys);
        for (std::int64_t x = 0; x < s.head_dim; ++x) {
            const auto at = static_cast<std::size_t>(head * s.head_dim + x);
            const float given = out[static_cast<std::size_t>((head * s.tokens + token) * s.head_dim + x)];
            result.bits_equal = result.bits_equal && std::bit_cast<std::uint32_t>(given) ==
                                                         std::bit_cast<std::uint32_t>(oracle[at]);
            const double difference =
                std::fabs(static_cast<double>(given) - textbook.out[static_cast<std::size_t>(x)]);
            result.max_abs_difference_float64 = larger(result.max_abs_difference_float64, difference);
        }
    }
    return result;
}

void merge(agreement& into, const agreement& part) {
    into.bits_equal = into.bits_equal && part.bits_equal;
    into.tokens_checked += part.tokens_checked;
    into.max_abs_difference_float64 =
        larger(into.max_abs_difference_float64, part.max_abs_difference_float64);
}

}  // namespace

std::vector<std::int64_t> tokens_to_check(const input_spec& spec, bool causal, const plan& plan) {
    constexpr double most_products = 4e8;
    const double products_per_token = static_cast<double>(spec.heads * 2 * spec.head_dim) *
                                      static_cast<double>(spec.tokens) * (causal ? 0.5 : 1.0);
    const auto affordable = static_cast<std::int64_t>(most_products / products_per_token);
    const std::int64_t wanted = std::min(spec.tokens, std::max<std::int64_t>(affordable, 24));

    if (wanted == spec.tokens) {
        std::vector<std::int64_t> all(static_cast<std::size_t>(wanted));
        std::iota(all.begin(), all.end(), 0);
        return all;
    }
    std::set<std::int64_t> tokens;
    const std::int64_t group = spec.heads / spec.kv_heads;
    for (const std::int64_t edge : {std::int64_t{1}, plan.panel_rows / group, plan.block_rows / group,
                                    plan.chunk_keys, spec.tokens / 2, spec.tokens}) {
        for (const std::int64_t token : {edge - 1, edge}) {
            if (token >= 0 && token < spec.tokens) { tokens.insert(token); }
        }
    }
    std::mt19937_64 generator(7);
    while (static_cast<std::int64_t>(tokens.size()) < wanted) {
        tokens.insert(static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(spec.tokens)));
    }
    return {tokens.begin(), tokens.end()};
}

agreement check(const input& from, bool causal, const std::vector<float>& out,
                const std::vector<std::int64_t>& tokens, int threads) {
    std::vector<agreement> parts(tokens.size());
    for_each_index(static_cast<std::int64_t>(tokens.size()), threads, [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        parts[at] = check_token(from, causal, out, tokens[at]);
    });
    agreement result;
    for (const agreement& part : parts) { merge(result, part); }
    return result;
}

}  // namespace tilewise::cli

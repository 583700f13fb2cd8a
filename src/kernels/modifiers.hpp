// Score modifiers: what is done to a tile of scores after the dot products (contract step 2), one function
// each, in the contract's order.

#ifndef TILEWISE_SRC_KERNELS_MODIFIERS_HPP
#define TILEWISE_SRC_KERNELS_MODIFIERS_HPP

#include <cstdint>

#include "../contract.hpp"
#include "elements.hpp"
#include "interface.hpp"
#include "panel.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "visibility.hpp"

namespace tilewise::kernels::TILEWISE_ISA {

/// tanh of x = |value| where that is below tanh_small, but for the sign.
TILEWISE_INLINE vec small_tanh(vec x) {
    const vec square = x * x;
    return fma(x * square, polynomial(square, contract::tanh_coefficients), x);
}

/// tanh, at most 2 ulp off.
TILEWISE_INLINE vec tanh_of(vec value) {
    const vec x = absolute(value);
    const vec y = select(x < broadcast(contract::tanh_large), x, broadcast(contract::tanh_large));
    const vec r = round_score(y, broadcast(contract::two_log2_e));
    const vec f = fma(y, broadcast(contract::two_log2_e_rest), fma(y, broadcast(contract::two_log2_e), -r));
    const vec power = scale_or_zero(exp2_of(f), r, scale_base(broadcast(0.0F)), contract::fold_min_exponent);
    vec large = broadcast(1.0F) - divide(broadcast(2.0F), power + broadcast(1.0F));
    large = select(x < broadcast(contract::tanh_large), large, broadcast(1.0F));

    const vec result = with_sign_of(select(x < broadcast(contract::tanh_small), small_tanh(x), large), value);
    return select(value == value, result, value);
}

/// Most scores are small beside the cap: where all of a key's are, their formula alone is computed.
template <int Vectors>
void cap_scores(real* tile, std::int64_t keys, real soft_cap, real factor) {
    for (std::int64_t j = 0; j < keys; ++j, tile += Vectors * lanes) {
        vec value[Vectors];
        bool all_small = true;
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) {
            value[n] = load(tile + n * lanes) * broadcast(factor);
            all_small = all_small & all(absolute(value[n]) < broadcast(contract::tanh_small));
        }
#pragma GCC unroll 3
        for (int n = 0; n < Vectors; ++n) {
            const vec capped =
                all_small ? with_sign_of(small_tanh(absolute(value[n])), value[n]) : tanh_of(value[n]);
            store(tile + n * lanes, broadcast(soft_cap) * capped);
        }
    }
}

inline void multiply_scores(real* tile, std::int64_t count, real scale) {
    for (std::int64_t i = 0; i < count; i += lanes) { store(tile + i, load(tile + i) * broadcast(scale)); }
}

/// Adds a bias to a score; -inf where the bias is. Returns whether it is.
TILEWISE_INLINE bool add_bias_to(real* score, real bias) {
    const bool masked = bias == -__builtin_inff();
    *score = masked ? bias : *score + bias;
    return masked;
}

/// A row of the bias over the keys of a tile, side by side in f32: where it lies, or converted.
TILEWISE_INLINE const real* bias_row(const shape& s, const task& t, const row_position& at,
                                     const key_range& keys, real* converted) {
    const grid& bias = s.scores.bias;
    const storage& type = storage_of(s.scores.bias_type);
    const std::int64_t offset =
        row_offset(bias, t, at.token(), at.head()) + (keys.first - t.first_key) * bias.key_stride;
    const std::byte* const from = element_at(bias.data, offset, type);
    if (type.type == real_type && bias.key_stride == 1) { return reinterpret_cast<const real*>(from); }
    type.decode(from, bias.key_stride, keys.last - keys.first, converted);
    return converted;
}

/// Adds the biases of as many rows as there are lanes to the scores of four keys; -inf where the bias is.
/// Returns where that is so.
TILEWISE_INLINE mask add_bias_columns(const real* const* rows, std::int64_t key, real* tile,
                                      std::int64_t width) {
    vec bias[4];
    gather_columns(rows, key, bias);
    mask masked(false);
    for (int n = 0; n < 4; ++n) {
        real* const place = tile + n * width;
        const mask here = bias[n] == broadcast(-__builtin_inff());
        store(place, select(here, bias[n], load(place) + bias[n]));
        masked = masked | here;
    }
    return masked;
}

/// Adds the biases of `count` rows to their scores of a tile. Returns whether some key is masked by -inf.
TILEWISE_INLINE bool add_bias_rows(const real* const* rows, std::int64_t count, std::int64_t keys, real* tile,
                                   std::int64_t width) {
    mask masked(false);
    std::int64_t j = 0;
    if (count > lanes / 4) {
        for (; j + 4 <= keys; j += 4) {
            masked = masked | add_bias_columns(rows, j, tile + j * width, width);
        }
    }
    bool rest_masked = false;
    for (; j < keys; ++j) {
        for (std::int64_t n = 0; n < count; ++n) {
            rest_masked |= add_bias_to(tile + j * width + n, rows[n][j]);
        }
    }
    return rest_masked || any(masked);
}

/// Returns whether some key is masked by a bias of -inf.
inline bool add_bias(const shape& s, const task& t, const panel& p, real* tile, const key_range& keys) {
    alignas(64) real converted[lanes][contract::chunk_keys];
    bool masked = false;
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; r += lanes) {
        const real* rows[lanes];
        const std::int64_t count = smaller(p.rows - r, lanes);
        for (std::int64_t n = 0; n < count; ++n, at.advance()) {
            rows[n] = bias_row(s, t, at, keys, converted[n]);
        }
        for (std::int64_t n = count; n < lanes; ++n) {
            rows[n] = rows[count - 1];
        }  // lanes that nobody reads
        masked |= add_bias_rows(rows, count, keys.last - keys.first, tile + r,
                                static_cast<std::int64_t>(p.vectors) * lanes);
    }
    return masked;
}

/// Writes `value` where the bias is -inf.
inline void fill_where_bias_masks(const shape& s, const task& t, const panel& p, real* tile,
                                  const key_range& keys, real value) {
    const std::int64_t width = static_cast<std::int64_t>(p.vectors) * lanes;
    alignas(64) real converted[contract::chunk_keys];
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < p.rows; ++r, at.advance()) {
        const real* const row = bias_row(s, t, at, keys, converted);
        for (std::int64_t j = 0; j < keys.last - keys.first; ++j) {
            if (row[j] == -__builtin_inff()) { tile[j * width + r] = value; }
        }
    }
}

/// Linear biases by distance (Press et al., arXiv:2108.12409).
template <int Vectors>
TILEWISE_INLINE void add_alibi(const shape& s, const task& t, const panel& p, real* tile,
                               const key_range& keys) {
    alignas(64) real slope[Vectors * lanes];
    alignas(64) real from_start[Vectors * lanes];
    const std::int64_t start = block_start(keys.first, contract::chunk_keys);
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < Vectors * lanes; ++r) {
        slope[r] = s.scores.alibi_slopes[t.first_head + at.head()];
        from_start[r] = static_cast<real>(t.query_position + at.token() - start);
        if (r + 1 < p.rows) { at.advance(); }
    }
    for (std::int64_t j = 0; j < keys.last - keys.first; ++j) {
        const vec key = broadcast(static_cast<real>(keys.first - start + j));
        for (int n = 0; n < Vectors; ++n) {
            real* const place = tile + (j * Vectors + n) * lanes;
            const vec distance = absolute(load(from_start + n * lanes) - key);
            store(place, fma(load(slope + n * lanes), -distance, load(place)));
        }
    }
}

#if !defined(TILEWISE_REAL_IS_DOUBLE)
/// The caller's function, once for each head of the group that has rows in the panel: those are every
/// group-th lane.
inline void call_function(const shape& s, const task& t, const panel& p, real* tile, const key_range& keys) {
    row_position at(p.first_row, s.group);
    for (std::int64_t r = 0; r < smaller(s.group, p.rows); ++r, at.advance()) {
        const std::int64_t queries = (p.rows - r + s.group - 1) / s.group;
        s.scores.function(s.scores.function_context,
                          {t.batch, t.first_head + at.head(), at.token(), queries,
                           t.query_position + at.token(), keys.first, keys.last - keys.first, tile + r,
                           s.group, static_cast<std::int64_t>(p.vectors) * lanes});
    }
}

#endif
/// Whether scores are changed at all.
inline bool has_modifiers(const score_rules& rules) {
    return rules.multiply || rules.soft_cap != 0.0 || rules.bias.data != nullptr ||
           rules.alibi_slopes != nullptr || rules.function != nullptr;
}

/// Returns whether some key is masked by a bias of -inf.
template <int Vectors>
bool modify_scores(const shape& s, const task& t, const panel& p, real* tile, const key_range& keys) {
    const score_rules& rules = s.scores;
    const std::int64_t count = (keys.last - keys.first) * Vectors * lanes;
    if (rules.soft_cap != 0.0) {
        cap_scores<Vectors>(tile, keys.last - keys.first, static_cast<real>(rules.soft_cap),
                            static_cast<real>(rules.soft_cap_factor));
    } else if (rules.multiply) {
        multiply_scores(tile, count, static_cast<real>(rules.scale));
    }
    const bool masked = rules.bias.data != nullptr && add_bias(s, t, p, tile, keys);
    if (rules.alibi_slopes != nullptr) { add_alibi<Vectors>(s, t, p, tile, keys); }
#if !defined(TILEWISE_REAL_IS_DOUBLE)
    if (rules.function != nullptr) {
        call_function(s, t, p, tile, keys);
        // It may have overwritten what the bias masks.
        if (masked) { fill_where_bias_masks(s, t, p, tile, keys, -__builtin_inff()); }
    }
#endif
    return masked;
}

}  // namespace tilewise::kernels::TILEWISE_ISA

#endif

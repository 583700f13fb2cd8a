// What tests of caller's score functions have in common.

#ifndef TILEWISE_TESTS_SCORE_FUNCTIONS_HPP
#define TILEWISE_TESTS_SCORE_FUNCTIONS_HPP

#include <cstdint>
#include <tilewise/score_tile.hpp>

#include "cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

inline attention_case sizes_of(std::int64_t queries, std::int64_t keys, std::int64_t batch = 2,
                               std::int64_t heads = 6, std::int64_t kv_heads = 2) {
    return {.batch = batch,
            .heads = heads,
            .kv_heads = kv_heads,
            .queries = queries,
            .keys = keys,
            .key_dim = 16,
            .value_dim = 8};
}

/// Calls visit(query of the tile, key, score) for each score.
template <class Visit>
void for_each_score(const tilewise::score_tile& tile, Visit visit) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        for (std::int64_t j = 0; j < tile.keys; ++j) {
            visit(i, tile.first_key + j, tile.scores[i * tile.query_stride + j * tile.key_stride]);
        }
    }
}

/// A causal mask.
inline void be_causal(void* /*context*/, const tilewise::score_tile& tile) noexcept {
    for_each_score(tile, [&](std::int64_t i, std::int64_t j, float& score) {
        if (j > tile.query_position + i) { score = -infinity; }
    });
}

}  // namespace tilewise_tests

#endif

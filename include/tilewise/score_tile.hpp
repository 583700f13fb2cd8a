// What a caller's score function (options::score_function) is called with.

#ifndef TILEWISE_SCORE_TILE_HPP
#define TILEWISE_SCORE_TILE_HPP

#include <cstdint>

namespace tilewise {

/// A tile of scores of one query head, for score_function: scores[i * query_stride + j * key_stride] is that
/// of query token first_query + i and key first_key + j.
struct score_tile {
    std::int64_t batch;  ///< or the number of the sequence, with query_starts
    std::int64_t head;   ///< query head
    std::int64_t first_query;
    std::int64_t queries;
    std::int64_t query_position;  ///< of first_query among the keys
    std::int64_t first_key;       ///< position of the first key
    std::int64_t keys;
    float* scores;
    std::int64_t query_stride;
    std::int64_t key_stride;
};

}  // namespace tilewise

#endif

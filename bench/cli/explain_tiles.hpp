// The online softmax on one query, one key per tile, in the library's arithmetic and in slow motion.

#ifndef TILEWISE_CLI_EXPLAIN_TILES_HPP
#define TILEWISE_CLI_EXPLAIN_TILES_HPP

#include <array>
#include <vector>

namespace tilewise::cli {

/// Heads of two components are enough to explain everything.
using pair = std::array<float, 2>;

/// What is known after a tile.
struct tile_state {
    float exponent = 0;  ///< the tile's score as a power of two
    float maximum = 0;   ///< the running maximum m: an integer
    float rescale = 0;   ///< 2^(m before - m): a power of two
    float weight = 0;    ///< 2^(exponent - m)
    float sum = 0;       ///< the running sum l of the weights
    pair output{};       ///< the running weighted sum o of the values
};

/// The states after each key. The last one's output / sum is the attention output.
[[nodiscard]] std::vector<tile_state> walk_tiles(const pair& query, const std::vector<pair>& keys,
                                                 const std::vector<pair>& values, float scale);

}  // namespace tilewise::cli

#endif

// The parts of the kernels that are timed alone, as one table per instruction set. Plain functions on plain
// pointers; no code crosses this line.

#ifndef TILEWISE_PARTS_PART_TABLE_HPP
#define TILEWISE_PARTS_PART_TABLE_HPP

#include <cstddef>
#include <cstdint>

#include <tilewise/element_type.hpp>

namespace tilewise::parts {

/// Memory for one tile and all that is computed with it, each at a multiple of 64 bytes and larger than any
/// part needs. The tile has `keys` rows of head_dim or value_dim `dim`.
struct tile_memory {
    std::int64_t keys;
    std::int64_t dim;
    float* q;                 ///< [dim][panel rows]
    float* rows;              ///< keys or values, [keys][stride]
    float* scores;            ///< [keys and a few][panel rows]
    float* out;               ///< [dim][panel rows]
    float* state;             ///< seven times [panel rows]
    float* scratch;           ///< of the narrow kernels
    const std::byte* stored;  ///< the rows in another type
    const float* scales;      ///< one for each row
    element_type type;
};

/// The parts; `n` is the vectors of query rows of a panel (1 to 3), or the query rows of a narrow one.
struct part_table {
    int lanes;
    int most_narrow_rows;
    std::int64_t (*stride)(std::int64_t dim);
    void (*scores)(const tile_memory&, int n);
    void (*softmax)(const tile_memory&, int n);
    void (*values)(const tile_memory&, int n);
    void (*narrow_scores)(const tile_memory&, int n);
    void (*narrow_values)(const tile_memory&, int n);
    void (*decode)(const tile_memory&);
};

}  // namespace tilewise::parts

#endif

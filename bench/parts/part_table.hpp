// The parts of the kernels that are timed alone, as one table per compilation of the kernels. Plain functions
// on plain pointers; no code crosses this line.

#ifndef TILEWISE_PARTS_PART_TABLE_HPP
#define TILEWISE_PARTS_PART_TABLE_HPP

#include <cstddef>
#include <cstdint>

#include <tilewise/element_type.hpp>

namespace tilewise::parts {

/// Memory for one tile and all that is computed with it, each at a multiple of 64 bytes and larger than any
/// part needs. The tile has `keys` rows of head_dim or value_dim `dim`. What has no type holds what the
/// kernels compute with, and counts that: f32, f64 or pairs of bf16.
struct tile_memory {
    std::int64_t keys;
    std::int64_t dim;
    void* q;                    ///< [dim][panel rows]
    void* rows;                 ///< keys or values, [keys][stride]
    void* scores;               ///< [keys and a few][panel rows]
    void* out;                  ///< [dim][panel rows]
    void* state;                ///< seven times [panel rows]
    void* scratch;              ///< of the narrow kernels
    const std::byte* stored;    ///< the rows as a caller has them
    std::int64_t token_stride;  ///< of them, in elements
    std::int64_t page_keys;     ///< where they are in pages; 0: they are not
    const std::int32_t* pages;  ///< the numbers of the pages
    const float* scales;        ///< one for each row
    element_type type;
};

/// The parts; `n` is the vectors of query rows of a panel, or the query rows of a narrow one.
struct part_table {
    int lanes;
    int most_vectors;
    int vector_multiple;   ///< a panel has a multiple of so many vectors
    int most_narrow_rows;  ///< 0: there are no narrow panels
    int softmax_operations;
    std::int64_t (*stride)(std::int64_t dim);
    void (*scores)(const tile_memory&, int n);
    void (*softmax)(const tile_memory&, int n);
    void (*values)(const tile_memory&, int n);
    void (*narrow_scores)(const tile_memory&, int n);
    void (*narrow_values)(const tile_memory&, int n);
    void (*load_keys)(const tile_memory&);
    void (*load_values)(const tile_memory&);
};

}  // namespace tilewise::parts

#endif

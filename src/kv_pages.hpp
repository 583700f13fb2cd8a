// A pool of pages of keys or values: memory, and the conversion of rows on their way in.

#ifndef TILEWISE_SRC_KV_PAGES_HPP
#define TILEWISE_SRC_KV_PAGES_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tilewise/tensor.hpp>

#include "heap_array.hpp"

namespace tilewise {

class kv_pages {
public:
    /// Allocates. `name` is that of the argument that gives the type.
    [[nodiscard]] bool make(std::string_view name, element_type type, std::int64_t pages, std::int64_t heads,
                            std::int64_t tokens, std::int64_t dim);

    /// [pages, heads, tokens, dim], with scales if the type has some.
    [[nodiscard]] const_tensor view() const;

    /// Writes one token of all heads: token t of `from`, [1, heads, tokens, dim].
    void store(std::int64_t page, std::int64_t token, const const_tensor& from, std::int64_t t);

    /// Copies the first `tokens` tokens of a page.
    void copy(std::int64_t from, std::int64_t to, std::int64_t tokens);

    [[nodiscard]] std::size_t memory_bytes() const;

private:
    void store_row(std::int64_t number);

    element_type type_ = element_type::f32;
    std::int64_t pages_ = 0;
    std::int64_t heads_ = 0;
    std::int64_t tokens_ = 0;
    std::int64_t dim_ = 0;
    std::int64_t row_bytes_ = 0;
    heap_array<std::byte> rows_;
    heap_array<float> scales_;  ///< one per row, for types that have some
    heap_array<float> row_;     ///< the one that is being stored, in f32
};

}  // namespace tilewise

#endif

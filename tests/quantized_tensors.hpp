// Keys and values of random quantised numbers, and what they are worth by a model of the storage types that
// is independent of the library's.

#ifndef TILEWISE_TESTS_QUANTIZED_TENSORS_HPP
#define TILEWISE_TESTS_QUANTIZED_TENSORS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

inline constexpr std::array quantized_types = {tilewise::element_type::q8_0, tilewise::element_type::q4_0};

/// Where rows lie.
enum class row_order : std::uint8_t { bhsd, bshd, neighbours, reversed_tokens };
inline constexpr std::array all_row_orders = {row_order::bhsd, row_order::bshd, row_order::neighbours,
                                              row_order::reversed_tokens};

class quantized_tensor {
public:
    /// Random bytes, but for what would be NaN, and scales near 1/100.
    quantized_tensor(const extents& sizes, tilewise::element_type type, row_order order, std::uint64_t seed);

    [[nodiscard]] tilewise::const_tensor view() const;
    /// The same values in f32, [batch, heads, tokens, head_dim].
    [[nodiscard]] owned_tensor values() const;

    /// The memory, of which every block belongs to some row.
    [[nodiscard]] std::vector<std::byte>& memory() { return memory_; }

private:
    [[nodiscard]] double value(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const;

    std::vector<std::byte> memory_;
    std::int64_t first_ = 0;  ///< byte of element 0
    tilewise::const_tensor view_;
};

}  // namespace tilewise_tests

#endif

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

inline constexpr std::array quantized_types = {tilewise::element_type::q8_0, tilewise::element_type::q4_0,
                                               tilewise::element_type::i8, tilewise::element_type::e4m3,
                                               tilewise::element_type::e5m2};

/// Whether a type has scales in memory of their own, and how they may lie there.
bool has_scales(tilewise::element_type type);
enum class scale_order : std::uint8_t { per_token, per_channel, per_head, per_token_head_innermost };
inline constexpr std::array all_scale_orders = {scale_order::per_token, scale_order::per_channel,
                                                scale_order::per_head, scale_order::per_token_head_innermost};

/// Where rows lie.
enum class row_order : std::uint8_t { bhsd, bshd, neighbours, reversed_tokens };
inline constexpr std::array all_row_orders = {row_order::bhsd, row_order::bshd, row_order::neighbours,
                                              row_order::reversed_tokens};

class quantized_tensor {
public:
    /// Random bytes, but for what would be NaN, and scales near 1/100.
    quantized_tensor(const extents& sizes, tilewise::element_type type, row_order order, std::uint64_t seed,
                     scale_order scales = scale_order::per_token);

    [[nodiscard]] tilewise::const_tensor view() const;
    /// The same values in f32, [batch, heads, tokens, head_dim].
    [[nodiscard]] owned_tensor values() const;

    /// The number, without a scale, in byte `place` of the memory.
    [[nodiscard]] float number(std::int64_t place) const;
    /// Makes scales per token NaN from a token on (of one batch entry and head).
    void spoil_scales_from(std::int64_t token);

    /// The memory, of which every block belongs to some row.
    [[nodiscard]] std::vector<std::byte>& memory() { return memory_; }

private:
    [[nodiscard]] double value(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const;

    std::vector<std::byte> memory_;
    std::int64_t first_ = 0;  ///< byte of element 0
    std::vector<float> scales_;
    tilewise::const_tensor view_;
};

}  // namespace tilewise_tests

#endif

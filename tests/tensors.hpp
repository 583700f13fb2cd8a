// Tensors that own their memory, in any layout: order of axes, gaps, reversed axes, broadcast axes.

#ifndef TILEWISE_TESTS_TENSORS_HPP
#define TILEWISE_TESTS_TENSORS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support.hpp"

namespace tilewise_tests {

using extents = std::array<std::int64_t, 4>;  // batch, heads, tokens, head_dim

/// Where the elements of a tensor lie. Axes: 0 batch, 1 heads, 2 tokens, 3 head_dim.
struct layout {
    const char* name;
    std::array<unsigned, 4> order = {0, 1, 2, 3};  ///< from the outermost axis to the innermost
    extents before = {};                           ///< elements in front of the view on each axis
    extents behind = {};                           ///< and behind it
    std::int64_t row_multiple = 1;                 ///< the innermost axis is padded to a multiple of it
    bool reversed = false;                         ///< all strides are negative
    std::array<bool, 4> broadcast = {};            ///< axes with stride 0
};

/// Layouts for inputs; the first `output_layouts` of them give every element a place of its own, with
/// positive strides, and serve for outputs too.
std::span<const layout> all_layouts();
inline constexpr std::size_t output_layouts = 7;

/// The contiguous [batch, heads, tokens, head_dim] layout.
const layout& dense();

/// Empty if a part of an owned tensor still holds the canary; else where it was written to, in words.
std::string first_written(const tilewise::tensor& part);

class owned_tensor {
public:
    owned_tensor() = default;
    owned_tensor(const extents& sizes, const layout& where = dense(),
                 tilewise::element_type type = tilewise::element_type::f32);

    // The views point into the memory: moving keeps it in place, copying would not.
    owned_tensor(owned_tensor&&) = default;
    owned_tensor& operator=(owned_tensor&&) = default;
    owned_tensor(const owned_tensor&) = delete;
    owned_tensor& operator=(const owned_tensor&) = delete;
    ~owned_tensor() = default;

    [[nodiscard]] const tilewise::tensor& view() const { return view_; }
    /// An element of an f32 tensor.
    [[nodiscard]] float& at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const;
    /// An element of an f64 tensor.
    [[nodiscard]] double& f64(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const;
    /// The value of an element of any type; setting rounds it to the type.
    [[nodiscard]] float get(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const {
        return value_at(view_, b, h, t, i);
    }
    void set(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i, float value) const {
        if (view_.type == tilewise::element_type::f64) {
            f64(b, h, t, i) = static_cast<double>(value);
        } else {
            set_bits(view_, b, h, t, i, stored_bits(value, view_.type));
        }
    }

    /// Calls `make` for each element in the order of the view's axes, so that the values do not depend on
    /// the layout (but for broadcast axes, where the last one stays).
    void fill(const std::function<float()>& make) const;
    /// With all bits of a double in an f64 tensor.
    void fill_normal(std::uint64_t seed, float size = 1.0F) const;

    /// Writes the canary to all of the memory, gaps and elements.
    void clear();
    /// Empty if all gaps, or if all of the memory, still hold the canary; else where not, in words.
    [[nodiscard]] std::string damage_to_gaps() const;
    [[nodiscard]] std::string damage() const;

private:
    [[nodiscard]] std::string damage_where(const std::vector<bool>& is_element) const;

    std::vector<std::byte> memory_;
    tilewise::tensor view_;
};

}  // namespace tilewise_tests

#endif

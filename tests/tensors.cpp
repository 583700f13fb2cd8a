#include "tensors.hpp"

#include <algorithm>
#include <cstddef>

namespace tilewise_tests {
namespace {

// A signalling NaN: gaps that are read by mistake poison what they reach.
constexpr std::uint32_t canary_bits = 0x7fa5c3e1U;

constexpr std::array<layout, 13> layouts = {{
    {.name = "bhsd"},
    {.name = "bshd", .order = {0, 2, 1, 3}},
    {.name = "sliced on all axes", .before = {1, 1, 2, 3}, .behind = {0, 1, 1, 2}},
    {.name = "bshd with neighbour heads",
     .order = {0, 2, 1, 3},
     .before = {0, 2, 0, 0},
     .behind = {0, 3, 0, 0}},
    {.name = "rows 4 KiB apart", .row_multiple = 1024},
    {.name = "bhds (head_dim strided)", .order = {0, 1, 3, 2}, .behind = {0, 0, 1, 0}},
    {.name = "sbhd with padded rows", .order = {2, 0, 1, 3}, .behind = {0, 0, 0, 1}},
    {.name = "reversed", .reversed = true},
    {.name = "reversed and sliced", .order = {0, 2, 1, 3}, .before = {0, 1, 1, 5}, .reversed = true},
    {.name = "dhsb (all axes turned around)", .order = {3, 2, 1, 0}},
    {.name = "broadcast batch and heads", .broadcast = {true, true, false, false}},
    {.name = "broadcast tokens", .broadcast = {false, false, true, false}},
    {.name = "broadcast head_dim", .broadcast = {false, false, false, true}},
}};

void for_each_element(const tilewise::tensor& view, const std::function<void(float&)>& visit) {
    for (std::int64_t b = 0; b < view.batch(); ++b) {
        for (std::int64_t h = 0; h < view.heads(); ++h) {
            for (std::int64_t t = 0; t < view.tokens(); ++t) {
                for (std::int64_t i = 0; i < view.head_dim(); ++i) { visit(*element(view, b, h, t, i)); }
            }
        }
    }
}

}  // namespace

std::span<const layout> all_layouts() { return layouts; }
const layout& dense() { return layouts[0]; }

std::string first_written(const tilewise::tensor& part) {
    std::string found;
    std::int64_t number = 0;
    for_each_element(part, [&](float& value) {
        if (bits_of(value) != canary_bits && found.empty()) {
            found = "written to element " + std::to_string(number) + ": " + show(value);
        }
        ++number;
    });
    return found;
}

owned_tensor::owned_tensor(const extents& sizes, const layout& where) {
    extents strides{};
    std::int64_t total = 1;
    std::int64_t first = 0;
    for (std::size_t inward = 4; inward-- > 0;) {
        const std::size_t axis = where.order[inward];
        if (where.broadcast[axis]) { continue; }
        strides[axis] = where.reversed ? -total : total;
        first += total * (where.reversed ? where.behind[axis] + std::max<std::int64_t>(sizes[axis] - 1, 0)
                                         : where.before[axis]);
        total *= where.before[axis] + sizes[axis] + where.behind[axis];
        if (inward == 3) {
            total = (total + where.row_multiple - 1) / where.row_multiple * where.row_multiple;
        }
    }
    // One element more, so that even an empty tensor has an address.
    memory_.assign(static_cast<std::size_t>(total) + 1, from_bits(canary_bits));
    view_ = {memory_.data() + std::min(first, total), tilewise::element_type::f32, sizes, strides};
}

void owned_tensor::fill(const std::function<float()>& make) const {
    for_each_element(view_, [&](float& value) { value = make(); });
}

void owned_tensor::fill_normal(std::uint64_t seed, float size) const {
    random_source random(seed);
    for_each_element(view_, [&](float& value) { value = random.normal() * size; });
}

void owned_tensor::clear() { std::fill(memory_.begin(), memory_.end(), from_bits(canary_bits)); }

std::string owned_tensor::damage() const {
    for (std::size_t place = 0; place < memory_.size(); ++place) {
        if (bits_of(memory_[place]) != canary_bits) {
            return "written at " + std::to_string(place) + " of the memory: " + show(memory_[place]);
        }
    }
    return {};
}

std::string owned_tensor::damage_to_gaps() const {
    std::vector<bool> is_element(memory_.size(), false);
    for_each_element(
        view_, [&](float& value) { is_element[static_cast<std::size_t>(&value - memory_.data())] = true; });
    for (std::size_t place = 0; place < memory_.size(); ++place) {
        if (!is_element[place] && bits_of(memory_[place]) != canary_bits) {
            return "written into a gap, at " + std::to_string(place) +
                   " of the memory: " + show(memory_[place]);
        }
    }
    return {};
}

}  // namespace tilewise_tests

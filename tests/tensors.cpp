#include "tensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <stdexcept>

namespace tilewise_tests {
namespace {

// Repeated, it is a NaN in every type: gaps that are read by mistake poison what they reach.
constexpr std::array canary = {std::byte{0xa5}, std::byte{0x7f}};

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

using place_visitor = std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>;

void for_each_element(const tilewise::tensor& view, const place_visitor& visit) {
    for (std::int64_t b = 0; b < view.batch(); ++b) {
        for (std::int64_t h = 0; h < view.heads(); ++h) {
            for (std::int64_t t = 0; t < view.tokens(); ++t) {
                for (std::int64_t i = 0; i < view.head_dim(); ++i) { visit(b, h, t, i); }
            }
        }
    }
}

std::size_t bytes_of(tilewise::element_type type) {
    return static_cast<std::size_t>(tilewise::block_of(type).bytes);
}

}  // namespace

std::span<const layout> all_layouts() { return layouts; }
const layout& dense() { return layouts[0]; }

std::string first_written(const tilewise::tensor& part) {
    constexpr std::uint32_t untouched =
        std::bit_cast<std::uint32_t>(std::array{canary[0], canary[1], canary[0], canary[1]});
    std::string found;
    std::int64_t number = 0;
    for_each_element(part, [&](auto... place) {
        const float value = *element(part, place...);
        if (bits_of(value) != untouched && found.empty()) {
            found = "written to element " + std::to_string(number) + ": " + show(value);
        }
        ++number;
    });
    return found;
}

owned_tensor::owned_tensor(const extents& sizes, const layout& where, tilewise::element_type type) {
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
    memory_.resize(static_cast<std::size_t>(total + 1) * bytes_of(type));
    clear();
    const auto offset = static_cast<std::size_t>(std::min(first, total)) * bytes_of(type);
    view_ = {memory_.data() + offset, type, sizes, strides};
}

float& owned_tensor::at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const {
    if (view_.type != tilewise::element_type::f32) { throw std::logic_error("at() is for f32"); }
    return *element(view_, b, h, t, i);
}

double& owned_tensor::f64(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const {
    if (view_.type != tilewise::element_type::f64) { throw std::logic_error("f64() is for f64"); }
    return f64_at(view_, b, h, t, i);
}

void owned_tensor::fill(const std::function<float()>& make) const {
    for_each_element(view_, [&](auto... place) { set(place..., make()); });
}

void owned_tensor::fill_normal(std::uint64_t seed, float size) const {
    random_source random(seed);
    if (view_.type != tilewise::element_type::f64) {
        fill([&] { return random.normal() * size; });
        return;
    }
    for_each_element(
        view_, [&](auto... place) { f64(place...) = random.precise_normal() * static_cast<double>(size); });
}

void owned_tensor::clear() {
    for (std::size_t place = 0; place < memory_.size(); ++place) { memory_[place] = canary[place % 2]; }
}

std::string owned_tensor::damage_where(const std::vector<bool>& is_element) const {
    for (std::size_t place = 0; place < memory_.size(); ++place) {
        const std::size_t element = place / bytes_of(view_.type);
        if (memory_[place] != canary[place % 2] && !(element < is_element.size() && is_element[element])) {
            return "written at byte " + std::to_string(place) + " of the memory";
        }
    }
    return {};
}

std::string owned_tensor::damage() const { return damage_where({}); }

std::string owned_tensor::damage_to_gaps() const {
    std::vector<bool> is_element(memory_.size() / bytes_of(view_.type));
    const auto into = static_cast<const std::byte*>(view_.data) - memory_.data();
    const std::int64_t first = into / static_cast<std::int64_t>(bytes_of(view_.type));
    for_each_element(view_, [&](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) {
        const auto& s = view_.strides;
        is_element[static_cast<std::size_t>(first + b * s[0] + h * s[1] + t * s[2] + i * s[3])] = true;
    });
    return damage_where(is_element);
}

}  // namespace tilewise_tests

// See arguments.hpp. Nothing here reads or writes an element.

#include "arguments.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tilewise {

namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    std::ostringstream message;
    message << "tilewise: ";
    (message << ... << parts);
    throw std::invalid_argument(message.str());
}

constexpr std::string_view axis_names[4] = {"batch", "heads", "tokens", "head_dim"};

bool is_empty(const const_tensor& view) {
    return view.batch() == 0 || view.heads() == 0 || view.tokens() == 0 || view.head_dim() == 0;
}

/// The bytes [first, last) that a view may touch, as addresses.
struct byte_range {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
};

/// Checks one view by itself; its byte range is empty if it has no element.
byte_range check_view(std::string_view name, const const_tensor& view) {
    if (view.type != element_type::f32) {
        refuse(name, ": element type number ", static_cast<int>(view.type), " given, f32 is supported");
    }
    for (std::size_t a = 0; a < 4; ++a) {
        if (view.extents[a] < 0) {
            refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be at least 0");
        }
    }
    if (is_empty(view)) { return {}; }
    if (view.data == nullptr) { refuse(name, ": null data given, the view has elements"); }
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    if (address % alignof(float) != 0) {
        refuse(name, ": data at address ", address, " given, it must be a multiple of ", alignof(float));
    }
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (std::size_t a = 0; a < 4; ++a) {
        std::int64_t reach = 0;
        std::int64_t& bound = view.strides[a] < 0 ? lowest : highest;
        if (__builtin_mul_overflow(view.extents[a] - 1, view.strides[a], &reach) ||
            __builtin_add_overflow(bound, reach, &bound)) {
            refuse(name, ": ", axis_names[a], " ", view.extents[a], " with stride ", view.strides[a],
                   " given, offsets must fit in 63 bits");
        }
    }
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max() / 8;
    if (lowest < -limit || highest > limit) {
        refuse(name, ": elements from offset ", lowest, " to ", highest,
               " given, byte offsets must fit in 63 bits");
    }
    const std::int64_t bytes = element_bytes(view.type);
    return {address + static_cast<std::uintptr_t>(lowest * bytes),
            address + static_cast<std::uintptr_t>((highest + 1) * bytes)};
}

void require_extent(std::string_view name, const const_tensor& view, axis along, std::int64_t wanted,
                    std::string_view reason) {
    const auto a = static_cast<std::size_t>(along);
    if (view.extents[a] != wanted) {
        refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", wanted, " as in ",
               reason);
    }
}

/// A written view must give every element a place of its own. Sorted by stride, each axis must step over
/// all that the smaller ones cover; this refuses some odd interleavings that would not overlap.
void require_distinct_elements(std::string_view name, const const_tensor& view) {
    if (is_empty(view)) { return; }
    std::int64_t covered = 0;
    bool used[4] = {};
    for (int round = 0; round < 4; ++round) {
        std::size_t smallest = 4;
        for (std::size_t a = 0; a < 4; ++a) {
            if (!used[a] && (smallest == 4 || std::abs(view.strides[a]) < std::abs(view.strides[smallest]))) {
                smallest = a;
            }
        }
        used[smallest] = true;
        if (view.extents[smallest] == 1) { continue; }
        const std::int64_t stride = std::abs(view.strides[smallest]);
        if (stride <= covered) {
            refuse(name, ": ", axis_names[smallest], " has stride ", view.strides[smallest],
                   ", which makes elements overlap; it must be at least ", covered + 1);
        }
        covered += (view.extents[smallest] - 1) * stride;
    }
}

void require_apart(std::string_view name, byte_range written, std::string_view other_name, byte_range other) {
    if (written.first < other.last && other.first < written.last) {
        refuse(name, ": its memory overlaps that of ", other_name, ", it must be apart from it");
    }
}

float checked_scale(const options& how, std::int64_t head_dim) {
    if (!how.scale.has_value()) {
        return head_dim == 0 ? 1.0F : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    }
    if (!std::isfinite(*how.scale)) { refuse("scale: ", *how.scale, " given, it must be finite"); }
    return *how.scale;
}

void check_options(const options& how) {
    if (how.causal != causal::none && how.causal != causal::bottom_right && how.causal != causal::top_left) {
        refuse("causal: number ", static_cast<int>(how.causal),
               " given, it must be none, bottom_right or top_left");
    }
    if (how.arithmetic != arithmetic::exact) {
        refuse("arithmetic: number ", static_cast<int>(how.arithmetic), " given, it must be exact");
    }
    if (how.threads < 0) {
        refuse("threads: ", how.threads,
               " given, it must be at least 0 (0 means as many as OpenMP would use)");
    }
}

/// Scratch memory grows with the head dimensions, and is counted in 64 bits.
constexpr std::int64_t largest_head_dim = std::int64_t{1} << 40;

void require_countable_head_dim(std::string_view name, std::int64_t head_dim) {
    if (head_dim > largest_head_dim) {
        refuse(name, ": head_dim is ", head_dim, ", it must be at most 2^40");
    }
}

/// Scores are counted in 63 bits, and so are the rows of a key head's group.
void require_countable(const problem& p) {
    std::int64_t count = p.batch;
    for (const std::int64_t factor : {p.heads, p.queries}) {
        if (__builtin_mul_overflow(count, factor, &count)) {
            refuse("q: batch ", p.batch, " x heads ", p.heads, " x tokens ", p.queries,
                   " given, the number of rows must fit in 63 bits");
        }
    }
}

}  // namespace

problem check_arguments(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                        const tensor& out, const options& how) {
    const byte_range q_bytes = check_view("q", q);
    const byte_range k_bytes = check_view("k", k);
    const byte_range v_bytes = check_view("v", v);
    const byte_range out_bytes = check_view("out", out);
    require_countable_head_dim("q", q.head_dim());
    require_countable_head_dim("v", v.head_dim());
    require_extent("k", k, axis::batch, q.batch(), "q");
    require_extent("k", k, axis::head_dim, q.head_dim(), "q");
    require_extent("v", v, axis::batch, k.batch(), "k");
    require_extent("v", v, axis::heads, k.heads(), "k");
    require_extent("v", v, axis::tokens, k.tokens(), "k");
    require_extent("out", out, axis::batch, q.batch(), "q");
    require_extent("out", out, axis::heads, q.heads(), "q");
    require_extent("out", out, axis::tokens, q.tokens(), "q");
    require_extent("out", out, axis::head_dim, v.head_dim(), "v");
    if (k.heads() == 0 ? q.heads() != 0 : q.heads() % k.heads() != 0) {
        refuse("k: ", k.heads(), " heads given, q has ", q.heads(), ", which must be a multiple of it");
    }
    require_distinct_elements("out", out);
    require_apart("out", out_bytes, "q", q_bytes);
    require_apart("out", out_bytes, "k", k_bytes);
    require_apart("out", out_bytes, "v", v_bytes);
    if (how.lse.data != nullptr) {
        const byte_range lse_bytes = check_view("lse", how.lse);
        require_extent("lse", how.lse, axis::batch, q.batch(), "q");
        require_extent("lse", how.lse, axis::heads, q.heads(), "q");
        require_extent("lse", how.lse, axis::tokens, q.tokens(), "q");
        require_extent("lse", how.lse, axis::head_dim, 1, "a tensor with one value per row");
        require_distinct_elements("lse", how.lse);
        require_apart("lse", lse_bytes, "q", q_bytes);
        require_apart("lse", lse_bytes, "k", k_bytes);
        require_apart("lse", lse_bytes, "v", v_bytes);
        require_apart("lse", lse_bytes, "out", out_bytes);
    }
    check_options(how);
    const std::int64_t offset = how.causal == causal::bottom_right ? k.tokens() - q.tokens() : 0;
    const problem checked{q.batch(),
                          q.heads(),
                          k.heads(),
                          k.heads() == 0 ? 1 : q.heads() / k.heads(),
                          q.tokens(),
                          k.tokens(),
                          q.head_dim(),
                          v.head_dim(),
                          {k.strides[2], k.strides[3]},
                          {v.strides[2], v.strides[3]},
                          how.causal != causal::none,
                          offset,
                          contract::scaling_for(checked_scale(how, q.head_dim()))};
    require_countable(checked);
    return checked;
}

}  // namespace tilewise

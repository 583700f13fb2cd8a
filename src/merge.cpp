#include <tilewise/merge.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "contract.hpp"
#include "elementary.hpp"
#include "float_environment.hpp"
#include "heap_array.hpp"
#include "reference_elements.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct place {
    std::int64_t batch;
    std::int64_t head;
    std::int64_t token;
};

std::int64_t index_in(const const_tensor& x, const place& row) {
    return row.batch * x.strides[0] + row.head * x.strides[1] + row.token * x.strides[2];
}

bool is_same(const const_tensor& a, const const_tensor& b) {
    return a.data == b.data && a.type == b.type && a.strides == b.strides;
}

/// What is written must be apart from what is read, or be just that.
bool require_apart_or_same(std::string_view name, const const_tensor& written, std::string_view other_name,
                           const const_tensor& read) {
    if (is_same(written, read)) { return true; }
    memory_map memory;
    byte_range read_bytes;
    byte_range written_bytes;
    return check_view(other_name, read, read.type, read_bytes) && memory.read(other_name, read_bytes) &&
           check_view(name, written, written.type, written_bytes) && memory.write(name, written_bytes);
}

bool require_rows_of(std::string_view name, const const_tensor& view, const tensor& out) {
    return require_extent(name, view, axis::batch, out.batch(), "out") &&
           require_extent(name, view, axis::heads, out.heads(), "out") &&
           require_extent(name, view, axis::tokens, out.tokens(), "out");
}

bool require_one_value(std::string_view name, const const_tensor& view) {
    if (view.head_dim() != 1) { return refuse(name, ": head_dim is ", view.head_dim(), ", it must be 1"); }
    return true;
}

bool check_part(std::size_t number, const partial_result& part, const tensor& out, const tensor& lse) {
    short_text<40> out_name;
    short_text<40> lse_name;
    out_name.assign({"parts[", number, "].out"});
    lse_name.assign({"parts[", number, "].lse"});
    byte_range bytes;
    const bool is_sound =
        check_view(out_name, part.out, float_types, bytes) &&
        check_view(lse_name, part.lse, element_type::f32, bytes) &&
        require_rows_of(out_name, part.out, out) && require_rows_of(lse_name, part.lse, out) &&
        require_extent(out_name, part.out, axis::head_dim, out.head_dim(), "out") &&
        require_one_value(lse_name, part.lse) && require_apart_or_same("out", out, out_name, part.out) &&
        require_apart_or_same("out", out, lse_name, part.lse);
    return is_sound && (lse.data == nullptr || (require_apart_or_same("lse", lse, out_name, part.out) &&
                                                require_apart_or_same("lse", lse, lse_name, part.lse)));
}

bool check_merge(std::span<const partial_result> parts, const tensor& out, const tensor& lse) {
    memory_map memory;
    byte_range bytes;
    if (!check_view("out", out, float_types, bytes) || !memory.write("out", bytes) ||
        !require_distinct_elements("out", out)) {
        return false;
    }
    if (lse.data != nullptr && !(check_view("lse", lse, element_type::f32, bytes) &&
                                 memory.write("lse", bytes) && require_rows_of("lse", lse, out) &&
                                 require_one_value("lse", lse) && require_distinct_elements("lse", lse))) {
        return false;
    }
    for (std::size_t n = 0; n < parts.size(); ++n) {
        if (!check_part(n, parts[n], out, lse)) { return false; }
    }
    return true;
}

/// One kind of NaN, and no -0.
float canonical(double value) {
    const auto rounded = static_cast<float>(value);
    return rounded == rounded ? rounded + 0.0F : std::bit_cast<float>(contract::binary32::canonical_nan_bits);
}

/// The share of each part in a row, up to a factor: exp(lse_i - the largest lse); -inf if it has none.
struct row_shares {
    heap_array<double> of_part;
    double sum = 0.0;
    double lse = 0.0;
};

void find_shares(std::span<const partial_result> parts, const place& row, row_shares& shares) {
    double largest = -infinity;
    for (std::size_t n = 0; n < parts.size(); ++n) {
        const auto lse = static_cast<double>(
            reference::read_element(parts[n].lse.data, element_type::f32, index_in(parts[n].lse, row)));
        shares.of_part[n] = lse;
        if (largest == largest && !(lse <= largest)) { largest = lse; }  // a NaN stays
    }
    shares.sum = 0.0;
    for (double& share : shares.of_part) {
        if (share == -infinity) { continue; }
        const double power = (share - largest) * contract::log2_e_double;
        share = power == power ? elementary::exp2(std::max(power, -2000.0)) : power;
        shares.sum += share;
    }
    if (largest == -infinity) {
        shares.lse = -infinity;
    } else {
        shares.lse =
            shares.sum == shares.sum ? largest + elementary::log2(shares.sum) * elementary::ln_2 : shares.sum;
    }
}

void merge_row(std::span<const partial_result> parts, const place& row, const row_shares& shares,
               const tensor& out) {
    if (out.head_dim() == 0) { return; }
    const std::int64_t first = index_in(out, row);
    for (std::int64_t x = 0; x < out.head_dim(); ++x) {
        double sum = 0.0;
        for (std::size_t n = 0; n < parts.size(); ++n) {
            if (shares.of_part[n] == -infinity) { continue; }
            const const_tensor& part = parts[n].out;
            const std::int64_t index = index_in(part, row) + x * part.strides[3];
            sum +=
                shares.of_part[n] * static_cast<double>(reference::read_element(part.data, part.type, index));
        }
        const double value = shares.lse == -infinity ? 0.0 : sum / shares.sum;
        reference::write_element(out.data, out.type, first + x * out.strides[3], canonical(value));
    }
}

}  // namespace

status try_merge(std::span<const partial_result> parts, const tensor& out, const tensor& lse) noexcept {
    const float_environment standard;
    row_shares shares;
    if (!check_merge(parts, out, lse) || !shares.of_part.allocate(parts.size())) { return status_of(false); }
    if (out.batch() == 0 || out.heads() == 0 || out.tokens() == 0) { return {}; }
    for (std::int64_t b = 0; b < out.batch(); ++b) {
        for (std::int64_t h = 0; h < out.heads(); ++h) {
            for (std::int64_t t = 0; t < out.tokens(); ++t) {
                const place row{b, h, t};
                find_shares(parts, row, shares);
                merge_row(parts, row, shares, out);
                if (lse.data == nullptr) { continue; }
                reference::write_element(lse.data, element_type::f32, index_in(lse, row),
                                         canonical(shares.lse));
            }
        }
    }
    return {};
}

void merge(std::span<const partial_result> parts, const tensor& out, const tensor& lse) {
    raise_unless(try_merge(parts, out, lse));
}

}  // namespace tilewise

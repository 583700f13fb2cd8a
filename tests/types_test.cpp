// 16-bit storage: every value and every rounding of the conversion functions and of the kernels, against a
// model in float64; and results that no mixture of types may change.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::element_type;

struct format {
    element_type type;
    int fraction_bits;
    int exponent_bias;
    std::uint32_t infinity;
    std::uint32_t nan;
};
constexpr std::array formats = {format{element_type::f16, 10, 15, 0x7c00U, 0x7e00U},
                                format{element_type::bf16, 7, 127, 0x7f80U, 0x7fc0U}};

/// The value of positive bits. Those of infinity give the number that would come next were there one.
double model_value(const format& of, std::uint32_t bits) {
    const auto exponent = static_cast<int>(bits >> of.fraction_bits);
    const std::uint32_t fraction = bits & ((1U << of.fraction_bits) - 1U);
    const std::uint32_t leading = exponent == 0 ? 0U : 1U << of.fraction_bits;
    return std::ldexp(static_cast<double>(leading + fraction),
                      std::max(exponent, 1) - of.exponent_bias - of.fraction_bits);
}

struct conversion {
    float value;
    std::uint32_t bits;
};

/// Each number of the format, and the floats at and beside the middle between it and the next; infinity and
/// NaN; all with both signs.
std::vector<conversion> all_roundings(const format& of) {
    std::vector<conversion> all = {
        {infinity, of.infinity}, {std::numeric_limits<float>::max(), of.infinity}, {1e-45F, 0}};
    for (std::uint32_t bits = 0; bits < of.infinity; ++bits) {
        const double here = model_value(of, bits);
        const auto middle = static_cast<float>((here + model_value(of, bits + 1)) / 2);
        all.push_back({static_cast<float>(here), bits});
        all.push_back({std::nextafter(middle, 0.0F), bits});
        all.push_back({middle, bits + (bits & 1U)});
        all.push_back({std::nextafter(middle, infinity), bits + 1});
    }
    const std::size_t positive = all.size();
    for (std::size_t i = 0; i < positive; ++i) { all.push_back({-all[i].value, all[i].bits | 0x8000U}); }
    for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0xffffffffU}) {
        all.push_back({from_bits(bits), of.nan});
    }
    return all;
}

/// Runs attention() or the naive formulation over one key of score 0, whose weight is 1: a copy of its value.
owned_tensor copy_through(const owned_tensor& v, element_type out_type, const layout& where, bool naively) {
    const extents sizes = v.view().extents;
    const owned_tensor zeros({sizes[0], sizes[1], 1, 1});
    zeros.fill([] { return 0.0F; });
    owned_tensor out(sizes, where, out_type);
    if (naively) {
        tilewise::reference::attention(zeros.view(), zeros.view(), v.view(), out.view());
    } else {
        tilewise::attention(zeros.view(), zeros.view(), v.view(), out.view());
    }
    return out;
}

/// Dense rows, and elements that are far apart.
constexpr std::array<std::size_t, 2> layouts_to_try = {0, 5};

/// As many columns as exercise whole vectors and what is left over.
constexpr count columns = 1013;

/// Checks that each value, copied through attention, comes out with its bits.
void check_copies(const std::vector<conversion>& values, const owned_tensor& v, element_type out_type) {
    for (const bool naively : {false, true}) {
        for (const std::size_t where : layouts_to_try) {
            const owned_tensor out = copy_through(v, out_type, all_layouts()[where], naively);
            count wrong = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto place = static_cast<count>(i);
                const std::uint32_t got = bits_at(out.view(), place / columns, 0, 0, place % columns);
                wrong += got == values[i].bits ? 0 : 1;
            }
            CHECK(wrong == 0);
            CHECK(out.damage_to_gaps() == "");
        }
    }
}

extents rows_for(std::size_t values) {
    return {(static_cast<count>(values) + columns - 1) / columns, 1, 1, columns};
}

/// The bits 0 .. 65535 in 16-bit elements, and their values in f32.
void fill_with_all(const owned_tensor& shorts, const owned_tensor& floats) {
    const tilewise::tensor& view = shorts.view();
    std::uint32_t bits = 0;
    for (count b = 0; b < view.batch(); ++b) {
        for (count t = 0; t < view.tokens(); ++t) {
            for (count i = 0; i < view.head_dim(); ++i, ++bits) {
                set_bits(view, b, 0, t, i, bits);
                floats.at(b, 0, t, i) = value_of_bits(bits, view.type);
            }
        }
    }
}

/// Queries of 0 give every key one weight: the output is the value that all keys have.
void check_uniform(const attention_case& which) {
    const inputs given = make_inputs(which);
    given.q.fill([] { return 0.0F; });
    for (const float value : {1.0F, 100.0F}) {
        given.v.fill([=] { return value; });
        const results want = make_results(which);
        want.out.fill([=] { return value; });
        INFO(show(which));
        CHECK(first_difference(tiled(which, given).out.view(), want.out.view()) == "");
    }
}

}  // namespace

TEST_CASE("types: the conversion functions round to the nearest even, and back exactly") {
    for (const format& of : formats) {
        count wrong = 0;
        for (const conversion& c : all_roundings(of)) { wrong += stored_bits(c.value, of.type) != c.bits; }
        for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
            const float value = value_of_bits(bits, of.type);
            const std::uint32_t magnitude = bits & 0x7fffU;
            if (magnitude > of.infinity) {
                wrong += std::isnan(value) ? 0 : 1;
                continue;
            }
            const double size =
                magnitude == of.infinity ? static_cast<double>(infinity) : model_value(of, magnitude);
            wrong += static_cast<double>(std::fabs(value)) == size ? 0 : 1;
            wrong += std::signbit(value) == (bits != magnitude) ? 0 : 1;
        }
        INFO(show(of.type));
        CHECK(wrong == 0);
    }
    static_assert(tilewise::float16(65520.0F).bits == 0x7c00U);
    static_assert(static_cast<float>(tilewise::bfloat16(1.0F)) == 1.0F);
}

TEST_CASE("types: every rounding of a result") {
    for (const format& of : formats) {
        INFO(show(of.type));
        std::vector<conversion> values = all_roundings(of);
        const owned_tensor v(rows_for(values.size()));
        v.fill([] { return 0.0F; });
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto place = static_cast<count>(i);
            v.at(place / columns, 0, 0, place % columns) = values[i].value;
            if (values[i].bits == 0x8000U) { values[i].bits = 0; }  // a zero result is +0
        }
        check_copies(values, v, of.type);
    }
}

TEST_CASE("types: every stored value of v") {
    for (const format& of : formats) {
        INFO(show(of.type));
        std::vector<conversion> values;
        const owned_tensor v(rows_for(0x10000), dense(), of.type);
        v.fill([] { return 0.0F; });
        for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
            const float value = value_of_bits(bits, of.type);
            values.push_back({value, std::isnan(value) ? canonical_nan_bits : bits_of(value + 0.0F)});
            set_bits(v.view(), bits / columns, 0, 0, bits % columns, bits);
        }
        check_copies(values, v, element_type::f32);
    }
}

TEST_CASE("types: every stored value of q, k and bias") {
    const extents sizes = {16, 1, 64, 64};
    const owned_tensor ones(sizes);
    ones.fill([] { return 1.0F; });
    const owned_tensor normal(sizes);
    normal.fill_normal(5);
    for (const format& of : formats) {
        for (const std::size_t where : layouts_to_try) {
            const owned_tensor shorts(sizes, all_layouts()[where], of.type);
            const owned_tensor floats(sizes);
            fill_with_all(shorts, floats);
            for (const char* argument : {"q", "k", "bias"}) {
                INFO(show(of.type), " ", argument, ", ", all_layouts()[where].name);
                const auto run = [&](const owned_tensor& all) {
                    results made{owned_tensor(sizes), owned_tensor({16, 1, 64, 1})};
                    const bool is_q = argument[0] == 'q';
                    const bool is_k = argument[0] == 'k';
                    tilewise::options how{.scale = 1.0F, .lse = made.lse.view()};
                    if (!is_q && !is_k) { how.bias = all.view(); }
                    tilewise::attention((is_q ? all : ones).view(), (is_k ? all : ones).view(), normal.view(),
                                        made.out.view(), how);
                    return made;
                };
                const results got = run(shorts);
                const results want = run(floats);
                CHECK(first_difference(got, want) == "");
            }
        }
    }
}

TEST_CASE("types: uniform attention over many keys is exact in every mixture of types") {
    for (const count keys : {count{1000}, count{4096}, by_effort(8192, 65536, 65536)}) {
        for (std::size_t mix = 0; mix < 81; ++mix) {
            check_uniform({.queries = 3,
                           .keys = keys,
                           .key_dim = 4,
                           .value_dim = 5,
                           .causal = tilewise::causal::bottom_right,
                           .types = {float_types[mix % 3], float_types[mix / 3 % 3], float_types[mix / 9 % 3],
                                     float_types[mix / 27]}});
        }
    }
}

TEST_CASE("types: uniform attention of many queries, and with fastest or in f64, is exact") {
    for (const count keys : {count{1000}, by_effort(8192, 65536, 65536)}) {
        for (const count queries : {1, 50}) {
            attention_case which{.queries = queries, .keys = keys, .key_dim = 4, .value_dim = 5};
            for (const element_type type : float_types) {
                which.types = {type, type, type, type};
                check_uniform(which);
            }
            which.types = bf16_types;
            which.arithmetic = tilewise::arithmetic::fastest;
            check_uniform(which);
#ifdef TILEWISE_TESTS_HAVE_F64
            which.arithmetic = tilewise::arithmetic::exact;
            check_uniform(in_f64(which));
#endif
        }
    }
}

// What the C interface offers has the bits of the C++ functions. (Attention, caches and streams are tested in
// C.)

#include <tilewise.h>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <tilewise/merge.hpp>
#include <tilewise/rotary.hpp>
#include <vector>

#include "cases.hpp"
#include "support.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;

tilewise_tensor c_view(const tilewise::tensor& from) {
    tilewise_tensor to{};
    to.data = from.data;
    to.type = static_cast<tilewise_type>(from.type);
    std::copy(from.extents.begin(), from.extents.end(), to.extents);
    std::copy(from.strides.begin(), from.strides.end(), to.strides);
    return to;
}

/// A call that must be refused, with this in its message.
void check_refused(tilewise_status given, const std::string& text) {
    CHECK(given == TILEWISE_INVALID_ARGUMENT);
    CHECK_MESSAGE(std::string(tilewise_last_error()).find(text) != std::string::npos, tilewise_last_error());
}

constexpr extents rows = {2, 3, 5, 16};
constexpr extents values = {2, 3, 5, 1};

/// Numbers of one of two parts.
struct part {
    owned_tensor out{rows};
    owned_tensor lse{values};
    explicit part(std::uint64_t seed) {
        out.fill_normal(seed);
        lse.fill_normal(seed + 100);
    }
};

owned_tensor rows_of_type(tilewise::element_type type) {
    owned_tensor x(rows, all_layouts()[2], type);
    x.fill_normal(5);
    return x;
}

}  // namespace

TEST_CASE("C: merge") {
    const part first(1);
    const part second(2);
    const owned_tensor out(rows);
    const owned_tensor lse(values);
    tilewise::merge(std::array{tilewise::partial_result{first.out.view(), first.lse.view()},
                               tilewise::partial_result{second.out.view(), second.lse.view()}},
                    out.view(), lse.view());
    const owned_tensor got(rows);
    const owned_tensor got_lse(values);
    std::array parts = {tilewise_partial_result{c_view(first.out.view()), c_view(first.lse.view())},
                        tilewise_partial_result{c_view(second.out.view()), c_view(second.lse.view())}};
    const tilewise_tensor to = c_view(got.view());
    const tilewise_tensor to_lse = c_view(got_lse.view());
    CHECK(tilewise_merge(parts.data(), 2, &to, &to_lse) == TILEWISE_OK);
    CHECK(first_difference(got.view(), out.view()) == "");
    CHECK(first_difference(got_lse.view(), lse.view()) == "");
    CHECK(tilewise_merge(parts.data(), 2, &to, nullptr) == TILEWISE_OK);
    CHECK(first_difference(got.view(), out.view()) == "");
    check_refused(tilewise_merge(nullptr, 2, &to, nullptr), "parts: null");
    check_refused(tilewise_merge(parts.data(), -1, &to, nullptr), "parts: -1 elements");
    check_refused(tilewise_merge(parts.data(), 2, nullptr, nullptr), "out: null");
    parts[1].lse.extents[2] = 4;
    check_refused(tilewise_merge(parts.data(), 2, &to, nullptr), "parts[1].lse: tokens is 4");
    parts[1].lse.type = 99;
    check_refused(tilewise_merge(parts.data(), 2, &to, nullptr), "parts.lse: number 99 given");
}

TEST_CASE("C: rotary embedding, by angles and by tables") {
    const std::vector<count> positions = {7, 3, 1000000, 0, 12};
    const tilewise::rotary_options how{
        .pairs = tilewise::rotary_pairs::interleaved, .dims = 12, .theta = 500000.0, .positions = positions};
    tilewise_rotary_options c_how{};
    c_how.size = sizeof c_how;
    c_how.pairs = TILEWISE_ROTARY_INTERLEAVED;
    c_how.has_dims = 1;
    c_how.dims = 12;
    c_how.theta = 500000.0;
    c_how.positions = positions.data();
    c_how.position_count = 5;
    for (const auto type :
         {tilewise::element_type::f32, tilewise::element_type::f16, tilewise::element_type::bf16}) {
        const owned_tensor x = rows_of_type(type);
        const owned_tensor got = rows_of_type(type);
        const tilewise_tensor c_x = c_view(got.view());
        tilewise::rotary_embedding(x.view(), how);
        CHECK(tilewise_rotary_embedding(&c_x, &c_how) == TILEWISE_OK);
        CHECK(first_difference(got.view(), x.view()) == "");
        tilewise::rotary_embedding(x.view());
        CHECK(tilewise_rotary_embedding(&c_x, nullptr) == TILEWISE_OK);
        CHECK(first_difference(got.view(), x.view()) == "");
    }

    const extents table = {1, 1, 40, 8};
    const owned_tensor cosines(table);
    const owned_tensor sines(table);
    const owned_tensor got_cosines(table);
    const owned_tensor got_sines(table);
    const tilewise_tensor c_cosines = c_view(got_cosines.view());
    const tilewise_tensor c_sines = c_view(got_sines.view());
    tilewise::rotary_tables(cosines.view(), sines.view(), {.first_position = 2});
    tilewise_rotary_options from_two{};
    from_two.size = sizeof from_two;
    from_two.first_position = 2;
    CHECK(tilewise_rotary_tables(&c_cosines, &c_sines, &from_two) == TILEWISE_OK);
    CHECK(first_difference(got_cosines.view(), cosines.view()) == "");
    CHECK(first_difference(got_sines.view(), sines.view()) == "");
    const owned_tensor x = rows_of_type(tilewise::element_type::f32);
    const owned_tensor got = rows_of_type(tilewise::element_type::f32);
    const tilewise_tensor c_x = c_view(got.view());
    tilewise::rotary_embedding(x.view(), cosines.view(), sines.view(), {.first_position = 2});
    CHECK(tilewise_rotary_embedding_by_tables(&c_x, &c_cosines, &c_sines, &from_two) == TILEWISE_OK);
    CHECK(first_difference(got.view(), x.view()) == "");
}

TEST_CASE("C: wrong arguments of the rotary embedding") {
    const owned_tensor x = rows_of_type(tilewise::element_type::f32);
    const tilewise_tensor c_x = c_view(x.view());
    tilewise_rotary_options how{};
    check_refused(tilewise_rotary_embedding(&c_x, &how), "rotary_options: size is 0");
    how.size = sizeof how;
    how.pairs = 2;
    check_refused(tilewise_rotary_embedding(&c_x, &how), "pairs: number 2 given");
    how.pairs = 0;
    how.position_count = 5;
    check_refused(tilewise_rotary_embedding(&c_x, &how), "positions: null");
    how.position_count = 0;
    how.theta = 0.5;
    check_refused(tilewise_rotary_embedding(&c_x, &how), "theta: 0.5 given");
    check_refused(tilewise_rotary_embedding(nullptr, nullptr), "x: null");
    check_refused(tilewise_rotary_embedding_by_tables(&c_x, nullptr, &c_x, nullptr), "cosines: null");
    check_refused(tilewise_rotary_embedding_by_tables(&c_x, &c_x, &c_x, nullptr), "cosines: batch 2");
    check_refused(tilewise_rotary_tables(&c_x, nullptr, nullptr), "sines: null");
}

}  // namespace tilewise_tests

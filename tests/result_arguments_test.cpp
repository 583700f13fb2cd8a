// Wrong results and score functions: each is refused by name, with what was given and what is allowed,
// before anything is written.

#include <doctest/doctest.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tilewise/attention.hpp>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "refusals.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::element_type;
using tilewise::tensor;

const std::vector<count> some_rows = {0, 2, 5};

/// The results besides the output, as members of the options.
struct result_member {
    std::string name;
    tensor& (*of)(tilewise::options& how);
};
const std::array<result_member, 5> members = {{
    {"lse", [](tilewise::options& how) -> tensor& { return how.lse; }},
    {"extra.row_maximum", [](tilewise::options& how) -> tensor& { return how.extra.row_maximum; }},
    {"extra.entropy", [](tilewise::options& how) -> tensor& { return how.extra.entropy; }},
    {"extra.key_weights", [](tilewise::options& how) -> tensor& { return how.extra.key_weights; }},
    {"extra.weights", [](tilewise::options& how) -> tensor& { return how.extra.weights; }},
}};

/// Rows far apart: what is put into the gap behind one touches no other tensor.
const layout& spaced() { return all_layouts()[4]; }
inputs spaced_inputs() {
    attention_case sizes = refused_sizes;
    sizes.layouts = {4, 4, 4, 4};
    return make_inputs(sizes);
}

/// All results are right but for what `spoil` does to the options. Nothing at all may be written.
template <class Spoil>
void refuses_spoilt(const std::vector<std::string>& parts, Spoil spoil) {
    const all_results into(refused_sizes, some_rows, spaced());
    const inputs given = spaced_inputs();
    tilewise::options how = into.asked_for({});
    spoil(how, given, into);
    refuses(given, into.out, how, parts);
    CHECK(damage(into) == "");
}

/// Makes a result dense, beginning at an element of another tensor.
void put_into_gap(tensor& result, void* place) {
    result.strides = owned_tensor(result.extents).view().strides;
    result.data = place;
}

/// `rows` are chosen; there is room for as many.
void refuses_rows(const std::vector<count>& rows, const std::vector<std::string>& parts) {
    const all_results into(refused_sizes, rows);
    refuses(make_inputs(refused_sizes), into.out, into.asked_for({}), parts);
    CHECK(damage(into) == "");
}

}  // namespace

TEST_CASE("result arguments: what the others spoil is right") {
    const all_results into(refused_sizes, some_rows);
    attend(make_inputs(refused_sizes), {}, into);
    CHECK(damage_to_gaps(into) == "");
}

TEST_CASE("result arguments: extents") {
    const std::string axis_names[] = {"batch", "heads", "tokens", "head_dim"};
    for (const result_member& member : members) {
        for (std::size_t a = 0; a < 4; ++a) {
            for (const count change : {-1, 1}) {
                INFO(member.name, ", ", axis_names[a], " ", change);
                const all_results sizes_from(refused_sizes, some_rows);
                tilewise::options of = sizes_from.asked_for({});
                const count right = member.of(of).extents[a];
                extents wrong = member.of(of).extents;
                wrong[a] += change;
                const owned_tensor memory(wrong);
                refuses_spoilt({member.name + ":", axis_names[a] + " is " + std::to_string(right + change),
                                "must be " + std::to_string(right)},
                               [&](tilewise::options& how, const inputs&, const all_results&) {
                                   member.of(how) = memory.view();
                               });
                CHECK(memory.damage() == "");
            }
        }
        refuses_spoilt({member.name + ":", "tokens is -1", "at least 0"},
                       [&](tilewise::options& how, const inputs&, const all_results&) {
                           member.of(how).extents[2] = -1;
                       });
    }
}

TEST_CASE("result arguments: element types") {
    for (const result_member& member : members) {
        for (const element_type type : {element_type::i32, element_type::boolean, element_type::bit}) {
            refuses_spoilt({member.name + ":", "must be f32"},
                           [&](tilewise::options& how, const inputs&, const all_results&) {
                               member.of(how).type = type;
                           });
        }
    }
}

TEST_CASE("result arguments: memory shared with inputs and other results") {
    for (const result_member& member : members) {
        const auto refuses_place = [&](const std::string& other, auto place) {
            refuses_spoilt({member.name + ":", "overlaps that of " + other + ","},
                           [&](tilewise::options& how, const inputs& given, const all_results& into) {
                               put_into_gap(member.of(how), place(given, into).view().data);
                           });
        };
        refuses_place(
            "q", [](const inputs& given, const auto&) -> auto& { return given.q; });
        refuses_place(
            "k", [](const inputs& given, const auto&) -> auto& { return given.k; });
        refuses_place(
            "v", [](const inputs& given, const auto&) -> auto& { return given.v; });
        refuses_place(
            "out", [](const auto&, const all_results& into) -> auto& { return into.out; });
    }
}

TEST_CASE("result arguments: memory shared with each other") {
    for (const result_member& one : members) {
        for (const result_member& other : members) {
            if (&one == &other) { continue; }
            refuses_spoilt({one.name, other.name, "overlaps"},
                           [&](tilewise::options& how, const inputs&, const all_results&) {
                               put_into_gap(one.of(how), other.of(how).data);
                           });
        }
    }
}

TEST_CASE("result arguments: memory shared with masks and biases") {
    for (const result_member& member : members) {
        refuses_spoilt({member.name, "bias", "overlaps"},
                       [&](tilewise::options& how, const inputs&, const all_results&) {
                           how.bias = {member.of(how).data, element_type::f32, {1, 1, 1, 9}, {0, 0, 0, 1}};
                       });
        refuses_spoilt({member.name, "mask", "overlaps"},
                       [&](tilewise::options& how, const inputs&, const all_results&) {
                           how.mask = {member.of(how).data, element_type::bit, {1, 1, 1, 9}, {0, 0, 0, 1}};
                       });
    }
}

TEST_CASE("result arguments: elements that overlap, and misaligned data") {
    for (const result_member& member : members) {
        refuses_spoilt({member.name + ":", "stride 0", "overlap"},
                       [&](tilewise::options& how, const inputs&, const all_results&) {
                           member.of(how).strides[1] = 0;
                       });
        refuses_spoilt({member.name + ":", "multiple of 4"},
                       [&](tilewise::options& how, const inputs&, const all_results&) {
                           member.of(how).data = static_cast<std::byte*>(member.of(how).data) + 2;
                       });
    }
}

TEST_CASE("result arguments: chosen rows") {
    refuses_rows({0, 6}, {"extra.weight_rows", "6", "0 to 5"});
    refuses_rows({-1, 3}, {"extra.weight_rows", "-1", "0 to 5"});
    refuses_rows({INT64_MIN}, {"extra.weight_rows", "0 to 5"});
    refuses_rows({0, 3, 2}, {"extra.weight_rows", "2 follows 3", "ascend"});
    refuses_rows({0, 3, 3}, {"extra.weight_rows", "3 follows 3", "ascend"});
    refuses_spoilt({"extra.weights", "null", "3 rows"},
                   [](tilewise::options& how, const inputs&, const all_results&) { how.extra.weights = {}; });
    refuses_spoilt(
        {"extra.weights", "tokens is 3", "must be 0"},
        [](tilewise::options& how, const inputs&, const all_results&) { how.extra.weight_rows = {}; });
}

TEST_CASE("result arguments: packed sequences") {
    attention_case packed = refused_sizes;
    packed.batch = 1;
    const inputs given = make_inputs(packed);
    const std::vector<count> query_starts = {1, 3, 5};
    const std::vector<count> key_starts = {0, 4, 9};
    const tilewise::options how{.query_starts = query_starts, .key_starts = key_starts};
    // Weights have a column for each key of the longest sequence, other results the layouts of q and k.
    all_results into(packed, some_rows);
    refuses(given, into.out, into.asked_for(how), {"extra.weights", "head_dim is 9", "must be 5"});
    CHECK(damage(into) == "");
    into.weights = owned_tensor({1, 4, 3, 5});
    attend(given, how, into);
    CHECK(damage_to_gaps(into) == "");
    all_results outside(packed, {6});
    outside.weights = owned_tensor({1, 4, 1, 5});
    refuses(given, outside.out, outside.asked_for(how), {"extra.weight_rows", "6", "0 to 5"});
    CHECK(damage(outside) == "");
}

}  // namespace tilewise_tests

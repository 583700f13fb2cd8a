// Wrong masks and modifiers: each is refused by name, with what was given and what is allowed, before
// anything is written.

#include <doctest/doctest.h>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <tilewise/attention.hpp>
#include <vector>

#include "cases.hpp"
#include "refusals.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::causal;
using tilewise::const_tensor;
using tilewise::element_type;

constexpr count queries = refused_sizes.queries;
constexpr count keys = refused_sizes.keys;
const std::vector<std::uint8_t> bytes(1000, 1);
const std::vector<float> floats(1000, 0.5F);
const std::vector<std::int32_t> integers(1000, 3);

const_tensor mask_of(std::array<count, 4> extents) {
    return {bytes.data(), element_type::boolean, extents, {0, 0, keys, 1}};
}

}  // namespace

TEST_CASE("mask arguments: intervals") {
    refuses({.window_left = -1}, {"window_left", "-1", "at least 0"});
    refuses({.window_right = -7}, {"window_right", "-7", "at least 0"});
    refuses({.prefix = -2}, {"prefix", "-2", "at least 0"});
    refuses({.attention_chunk = -3}, {"attention_chunk", "-3", "at least 0"});
    refuses({.query_position = INT64_MAX}, {"query_position", std::to_string(INT64_MAX), "2^61"});
    refuses({.causal = causal::top_left, .query_position = 5}, {"query_position", "5", "top_left"});
    refuses({.key_position = -1}, {"key_position", "-1"});
    refuses({.key_position = std::int64_t{1} << 61}, {"key_position", "9 keys", "2^61"});
    const std::vector<count> positions = {3, -2};
    refuses({.key_positions = positions}, {"key_positions", "-2"});
    refuses({.key_position = 1, .key_positions = positions}, {"key_position", "1", "key_positions"});
    const std::vector<count> descending = {0, 5, 4, 9};
    refuses({.documents = descending}, {"documents", "4", "5"});
    const std::vector<count> single = {0};
    refuses({.documents = single}, {"documents", "1 boundary"});
}

TEST_CASE("mask arguments: key lengths") {
    const std::vector<count> few = {3};
    refuses({.key_lengths = few}, {"key_lengths", "1 values", "2"});
    const std::vector<count> negative = {3, -1};
    refuses({.key_lengths = negative}, {"key_lengths", "-1", "0 to 9"});
    const std::vector<count> long_one = {10, 3};
    refuses({.key_lengths = long_one}, {"key_lengths", "10", "0 to 9"});
}

TEST_CASE("mask arguments: ranges") {
    const const_tensor right(integers.data(), element_type::i32, {1, 1, queries, 1}, {0, 0, 1, 1});
    refuses({.ranges = {right, {}}}, {"ranges", "only one"});
    refuses({.ranges = {right, {floats.data(), element_type::f32, {1, 1, queries, 1}, {0, 0, 1, 1}}}},
            {"ranges.last", "f32", "i32"});
    refuses({.ranges = {{integers.data(), element_type::i32, {1, 3, queries, 1}, {0, 0, 1, 1}}, right}},
            {"ranges.first", "heads", "3", "4 or 1"});
}

TEST_CASE("mask arguments: tensors") {
    refuses({.mask = mask_of({1, 1, queries, keys - 1})}, {"mask", "8", "9"});
    refuses({.mask = mask_of({3, 1, queries, keys})}, {"mask", "batch", "3", "2 or 1"});
    refuses({.mask = mask_of({1, 2, queries, keys})}, {"mask", "heads", "2", "4 or 1"});
    refuses({.mask = mask_of({1, 1, 5, keys})}, {"mask", "tokens", "5", "6 or 1"});
    refuses({.mask = {floats.data(), element_type::f32, {1, 1, queries, keys}, {0, 0, keys, 1}}},
            {"mask", "f32", "boolean"});
    refuses({.bias = mask_of({1, 1, queries, keys})}, {"bias", "boolean", "f32"});
    refuses({.blocks = {mask_of({1, 1, 3, 3}), 0, 3}}, {"blocks", "query_block 0", "at least 1"});
    refuses({.blocks = {mask_of({1, 1, 3, 4}), 2, 3}}, {"blocks", "4", "3"});
    const inputs given = make_inputs(refused_sizes);
    const results got = make_results(refused_sizes);
    const const_tensor overlapping(got.out.view().data, element_type::f32, {1, 1, 1, keys}, {0, 0, 0, 1});
    CHECK_THROWS_AS(tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(),
                                        {.bias = overlapping}),
                    std::invalid_argument);
}

TEST_CASE("mask arguments: modifiers") {
    refuses({.soft_cap = -1.0F}, {"soft_cap", "-1", "positive"});
    refuses({.soft_cap = quiet_nan}, {"soft_cap", "nan", "finite"});
    refuses({.soft_cap = infinity}, {"soft_cap", "inf", "finite"});
    const std::vector<float> three(3, 0.5F);
    refuses({.alibi_slopes = three}, {"alibi_slopes", "3 values", "4 query heads"});
    refuses({.sinks = three}, {"sinks", "3 values", "4 query heads"});
    const std::vector<float> not_finite = {1, 2, quiet_nan, 4};
    refuses({.alibi_slopes = not_finite}, {"alibi_slopes", "nan", "finite"});
}

TEST_CASE("mask arguments: packed sequences") {
    const std::vector<count> starts = {0, 6};
    refuses({.query_starts = starts, .key_starts = starts}, {"q", "batch is 2", "1"});
    attention_case packed = refused_sizes;
    packed.batch = 1;
    const inputs given = make_inputs(packed);
    const results got = make_results(packed);
    const auto message_of = [&](const std::vector<count>& of_queries, const std::vector<count>& of_keys) {
        return refusal_of([&] {
            tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(),
                                {.query_starts = of_queries, .key_starts = of_keys});
        });
    };
    CHECK(message_of({0, 6}, {0, 3, 9}).find("key_starts: 3 values") != std::string::npos);
    CHECK(message_of({0, 6}, {}).find("key_starts: 0 values") != std::string::npos);
    CHECK(message_of({0, 4, 3}, {0, 4, 9}).find("query_starts: 3 follows 4") != std::string::npos);
    CHECK(message_of({0, 3, 7}, {0, 4, 9}).find("0 to 6") != std::string::npos);
    CHECK(message_of({-1, 6}, {0, 9}).find("from -1") != std::string::npos);
    CHECK(message_of({0, 6}, {0, 10}).find("key_starts") != std::string::npos);
    constexpr count largest = std::numeric_limits<count>::max();
    CHECK(message_of({-4096, largest}, {0, 9}).find("from -4096") != std::string::npos);
    CHECK(message_of({6}, {9}).find("2 or more") != std::string::npos);
    CHECK(got.out.damage() == "");
    CHECK(message_of({0, 6}, {0, 9}).empty());
}

}  // namespace tilewise_tests

// attention_stream has the bits of one call, however keys and values are cut into pieces, wherever these lie
// and however they are stored, and on any number of threads.

#include <doctest/doctest.h>

#include <cstdint>
#include <tilewise/stream.hpp>
#include <utility>
#include <vector>

#include "cases.hpp"
#include "mask_cases.hpp"
#include "quantized_tensors.hpp"
#include "streams.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;

/// NaN and infinities at a few places of k and v.
void spoil(random_source& random, const inputs& given, const attention_case& sizes) {
    const float values[] = {quiet_nan, infinity, -infinity, 1e-41F, -0.0F, 3e38F};
    for (int n = 0; n < 3; ++n) {
        const count h = random.between(0, sizes.kv_heads - 1);
        given.k.set(0, h, random.between(0, sizes.keys - 1), 0, values[random.between(0, 5)]);
        given.v.set(0, h, random.between(0, sizes.keys - 1), 0, values[random.between(0, 5)]);
    }
}

void check_cuts(const attention_case& sizes, const tilewise::options& how, const inputs& given,
                const std::vector<std::vector<count>>& cuts) {
    const row_results want = at_once(sizes, given, how);
    tilewise::options with_threads = how;
    for (const std::vector<count>& pieces : cuts) {
        INFO(pieces.size(), " pieces, the first of ", pieces.empty() ? 0 : pieces.front());
        with_threads.threads = with_threads.threads % 3 + 1;
        tilewise::attention_stream stream = stream_over(sizes, given, with_threads, pieces);
        CHECK(stream.keys_added() == sizes.keys);
        const row_results got = finished(stream, sizes);
        CHECK(first_difference(got, want) == "");
        CHECK(got.out.damage_to_gaps() == "");
        CHECK(got.lse.damage_to_gaps() == "");
    }
}

}  // namespace

TEST_CASE("stream: any masks and modifiers, cut in any way") {
    random_source random(41);
    for (count number = 0; number < by_effort(30, 60, 300); ++number) {
        const attention_case sizes = streamable_sizes(random);
        const mask_case made = streamable_masks(random, sizes);
        const inputs given = make_inputs(sizes);
        if (number % 3 == 0) { spoil(random, given, sizes); }
        INFO(show(sizes), ", ", made.names);
        check_cuts(sizes, made.how, given, {random_pieces(random, sizes.keys), {sizes.keys}});
    }
}

TEST_CASE("stream: pieces of 1, 7, 127, 128, 129 and all keys") {
    for (const count keys : {count{1}, count{127}, count{128}, count{129}, by_effort(300, 300, 700)}) {
        for (const count key_position : {0, 1, 100, 128, 257}) {
            const attention_case sizes{.batch = 2,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .queries = 5,
                                       .keys = keys,
                                       .key_dim = 20,
                                       .value_dim = 24,
                                       .seed = 42};
            std::vector<std::vector<count>> cuts;
            for (const count length : {count{1}, count{7}, count{127}, count{128}, count{129}, keys}) {
                cuts.push_back(equal_pieces(keys, length));
            }
            INFO("keys ", keys, ", key_position ", key_position);
            check_cuts(sizes, {.causal = tilewise::causal::bottom_right, .key_position = key_position},
                       make_inputs(sizes), cuts);
        }
    }
}

TEST_CASE("stream: few rows and long pieces, whose keys several threads share") {
    const attention_case sizes{
        .queries = 1, .keys = by_effort(3000, 6000, 40000), .key_dim = 64, .value_dim = 64, .seed = 43};
    check_cuts(sizes, {}, make_inputs(sizes),
               {{sizes.keys}, {sizes.keys}, {sizes.keys}, {100, sizes.keys / 2, sizes.keys / 2 - 100}});
}

TEST_CASE("stream: keys and values stored in any way, another one in each piece") {
    random_source random(44);
    const count keys = 500;
    attention_case sizes{
        .batch = 2, .heads = 4, .kv_heads = 2, .queries = 7, .keys = keys, .key_dim = 64, .value_dim = 32};
    for (const tilewise::element_type type : quantized_types) {
        const quantized_tensor k({2, 2, keys, 64}, type, row_order::neighbours, random.bits());
        const quantized_tensor v({2, 2, keys, 32}, type, row_order::bshd, random.bits(),
                                 scale_order::per_channel);
        inputs given = make_inputs(sizes);
        given.k = k.values();
        given.v = v.values();
        const row_results want = at_once(sizes, given, {});
        for (const bool mixed : {false, true}) {
            tilewise::attention_stream stream(given.q.view(), {.kv_heads = 2, .value_dim = 32});
            count first = 0;
            for (const count piece : random_pieces(random, keys)) {
                const bool in_f32 = mixed && random.between(0, 1) == 0;
                const auto part = [&](const tilewise::const_tensor& stored, const owned_tensor& values) {
                    const tilewise::const_tensor from = in_f32 ? values.view() : stored;
                    return from.slice(tilewise::axis::tokens, first, piece);
                };
                stream.add(part(k.view(), given.k), part(v.view(), given.v));
                first += piece;
            }
            INFO(show(type));
            CHECK(first_difference(finished(stream, sizes), want) == "");
        }
    }
}

TEST_CASE("stream: without keys, rows are empty, or their sink's") {
    attention_case sizes{.heads = 2, .kv_heads = 1, .queries = 3, .keys = 0, .key_dim = 8, .value_dim = 5};
    const inputs given = make_inputs(sizes);
    const std::vector<float> sinks = {0.5F, -infinity};
    for (const tilewise::options& how : {tilewise::options{}, tilewise::options{.sinks = sinks}}) {
        const row_results want = at_once(sizes, given, how);
        for (const std::vector<count>& pieces : {std::vector<count>{}, std::vector<count>{0, 0}}) {
            tilewise::attention_stream stream = stream_over(sizes, given, how, pieces);
            CHECK(first_difference(finished(stream, sizes), want) == "");
        }
    }
}

TEST_CASE("stream: extents of 0") {
    for (int n = 0; n < 5; ++n) {
        attention_case sizes{
            .batch = 2, .heads = 2, .kv_heads = 2, .queries = 3, .keys = 300, .key_dim = 4, .value_dim = 4};
        if (n == 0) { sizes.batch = 0; }
        if (n == 1) { sizes.heads = sizes.kv_heads = 0; }
        if (n == 2) { sizes.queries = 0; }
        if (n == 3) { sizes.key_dim = 0; }
        if (n == 4) { sizes.value_dim = 0; }
        INFO(show(sizes));
        check_cuts(sizes, {.scale = 1.0F}, make_inputs(sizes), {{100, 100, 100}, {300}});
    }
}

TEST_CASE("stream: total_keys or query_position say where the queries are") {
    const attention_case sizes{.queries = 9, .keys = 300, .key_dim = 8, .value_dim = 8};
    const inputs given = make_inputs(sizes);
    tilewise::options how{.causal = tilewise::causal::bottom_right, .window_left = 100};
    const row_results want = at_once(sizes, given, how);
    how.query_position = 291;
    tilewise::attention_stream stream(given.q.view(), {.value_dim = 8}, how);
    add_keys(stream, given, 0, 200);
    add_keys(stream, given, 200, 100);
    CHECK(first_difference(finished(stream, sizes), want) == "");
}

TEST_CASE("stream: it may be moved, also while keys are carried") {
    const attention_case sizes{.queries = 9, .keys = 300, .key_dim = 8, .value_dim = 8};
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, {});
    tilewise::attention_stream stream = stream_over(sizes, given, {}, {200});
    tilewise::attention_stream other(std::move(stream));
    add_keys(other, given, 200, 30);
    tilewise::attention_stream third(given.q.view(), {.value_dim = 3});
    third = std::move(other);
    add_keys(third, given, 230, 70);
    CHECK(first_difference(finished(third, sizes), want) == "");
}

}  // namespace tilewise_tests

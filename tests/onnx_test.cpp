// The ONNX operator: random combinations of what it offers against a float64 model, and named cases that the
// public test vectors lack. Wrong arguments are in onnx_arguments_test.cpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tilewise/tilewise.hpp>

#include "allocation_counter.hpp"
#include "onnx_cases.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

namespace onnx = tilewise::onnx;
using count = std::int64_t;

onnx_case random_case(std::uint64_t seed) {
    random_source random(seed);
    const auto chance = [&](count of) { return random.between(1, of) == 1; };
    onnx_case c;
    c.seed = seed;
    c.batch = random.between(1, 3);
    c.kv_heads = random.between(1, 2);
    c.q_heads = c.kv_heads * random.between(1, 3);
    c.queries = random.between(1, 7);
    c.new_keys = random.between(chance(8) ? 0 : 1, chance(4) ? 150 : 9);
    c.key_dim = random.between(1, 9);
    c.value_dim = random.between(1, 9);
    c.has_rank_3 = chance(2);
    c.has_sinks = chance(4);
    count least_mask = 0;
    if (chance(2)) {
        c.past = random.between(0, 7);
        c.wants_present = chance(2);
    } else if (chance(2)) {
        c.lengths.emplace();
        for (count b = 0; b < c.batch; ++b) { c.lengths->push_back(random.between(0, c.new_keys)); }
        least_mask = *std::max_element(c.lengths->begin(), c.lengths->end());
    } else {
        c.wants_present = chance(2);
    }
    c.set.is_causal = chance(2) ? 1 : 0;
    if (chance(3)) { c.set.left_window_size = random.between(0, 4); }
    if (chance(3)) { c.set.right_window_size = random.between(0, 4); }
    if (chance(3)) { c.set.softcap = 1.5F; }
    if (chance(3)) { c.set.scale = -0.4F; }
    if (chance(2)) {
        c.mask_is_boolean = chance(2);
        const count last = chance(3) ? random.between(least_mask, c.keys()) : c.keys();
        const shape whole = {chance(2) ? 1 : c.batch, chance(2) ? 1 : c.q_heads, chance(3) ? 1 : c.queries,
                             last};
        c.mask = shape(whole.begin() + random.between(0, 3), whole.end());
    }
    return c;
}

}  // namespace

TEST_CASE("onnx: random combinations mean what the operator's text says") {
    const count cases = by_effort(60, 200, 400);
    for (count seed = 1; seed <= cases; ++seed) {
        check_model(random_case(static_cast<std::uint64_t>(seed)));
    }
}

TEST_CASE("onnx: qk_matmul_output, in random combinations, and y keeps its bits") {
    const count cases = by_effort(60, 200, 400);
    for (count seed = 1; seed <= cases; ++seed) {
        onnx_case c = random_case(static_cast<std::uint64_t>(seed));
        onnx_tensors without = make_tensors(c);
        make_call(c, without).run();
        c.wants_qk = true;
        c.set.qk_matmul_output_mode = seed % 4;
        INFO(show(c));
        onnx_tensors with = make_tensors(c);
        make_call(c, with).run({.threads = static_cast<int>(seed % 3)});
        CHECK(difference_from_model(c, with) == "");
        CHECK(std::memcmp(with.y.floats.data(), without.y.floats.data(),
                          sizeof(float) * with.y.floats.size()) == 0);
    }
}

TEST_CASE("onnx: y has the bits of attention()") {
    const onnx_case c{.past = std::nullopt, .has_rank_3 = true};
    onnx_tensors t = make_tensors(c);
    make_call(c, t).run();
    std::vector<float> want(t.y.floats.size());
    tilewise::attention(tilewise::bshd(t.q.floats.data(), c.batch, c.queries, c.q_heads, c.key_dim),
                        tilewise::bshd(t.k.floats.data(), c.batch, c.new_keys, c.kv_heads, c.key_dim),
                        tilewise::bshd(t.v.floats.data(), c.batch, c.new_keys, c.kv_heads, c.value_dim),
                        tilewise::bshd(want.data(), c.batch, c.queries, c.q_heads, c.value_dim));
    CHECK(want == t.y.floats);
}

TEST_CASE("onnx: masks shorter than the keys hide the keys beyond") {
    for (const bool is_boolean : {false, true}) {
        for (const count past : {0, 4}) {
            for (count last = 0; last <= past + 5; ++last) {
                check_model({.past = past,
                             .mask = shape{3, last},
                             .mask_is_boolean = is_boolean,
                             .set = {.is_causal = 1}});
            }
        }
    }
}

TEST_CASE("onnx: negative causal offsets leave the first queries without keys") {
    const onnx_case c{.queries = 4, .lengths = std::vector<count>{2, 0}, .set = {.is_causal = 1}};
    check_model(c);
    onnx_tensors t = make_tensors(c);
    make_call(c, t).run();
    const std::size_t row = static_cast<std::size_t>(c.value_dim);
    for (std::size_t i = 0; i < 2 * row; ++i) { CHECK(bits_of(t.y.floats[i]) == 0); }
    CHECK(t.y.floats[2 * row] != 0);
}

TEST_CASE("onnx: padding is not read") {
    const onnx_case c{.lengths = std::vector<count>{3, 4}};
    onnx_tensors t = make_tensors(c);
    for (onnx_tensor* tensor : {&t.k, &t.v}) {
        const count dim = tensor->extents[3];
        for (count at = 4 * dim; at < count(tensor->floats.size()); at += 5 * dim) {
            std::fill_n(tensor->floats.begin() + at, dim, quiet_nan);
        }
    }
    make_call(c, t).run();
    CHECK(std::none_of(t.y.floats.begin(), t.y.floats.end(), [](float y) { return y != y; }));
}

TEST_CASE("onnx: softmax_precision is accepted and changes nothing") {
    onnx_case c;
    onnx_tensors want = make_tensors(c);
    make_call(c, want).run();
    for (const count precision : {1, 10, 11, 16}) {
        c.set.softmax_precision = precision;
        onnx_tensors got = make_tensors(c);
        make_call(c, got).run();
        CHECK(got.y.floats == want.y.floats);
    }
}

TEST_CASE("onnx: a past of length 0 is as none") {
    onnx_case c{.wants_present = true, .set = {.is_causal = 1}};
    onnx_tensors want = make_tensors(c);
    make_call(c, want).run();
    c.past = 0;
    onnx_tensors got = make_tensors(c);
    onnx_call call = make_call(c, got);
    call.given.past_key->data = nullptr;
    call.given.past_value->data = nullptr;
    call.run();
    CHECK(got.y.floats == want.y.floats);
    CHECK(got.present_key.floats == want.present_key.floats);
}

TEST_CASE("onnx: extents of 0") {
    for (const bool has_rank_3 : {false, true}) {
        for (count mode = 0; mode < 4; ++mode) {
            const onnx::attributes set{.qk_matmul_output_mode = mode};
            check_model({.batch = 0,
                         .past = 2,
                         .has_rank_3 = has_rank_3,
                         .wants_present = true,
                         .wants_qk = true,
                         .set = set});
            check_model({.batch = 0, .has_rank_3 = has_rank_3, .lengths = std::vector<count>{}, .set = set});
            check_model({.queries = 0, .has_rank_3 = has_rank_3, .wants_qk = true, .set = set});
            check_model({.new_keys = 0, .has_rank_3 = has_rank_3, .wants_qk = true, .set = set});
            check_model({.new_keys = 0,
                         .past = 3,
                         .has_rank_3 = has_rank_3,
                         .wants_present = true,
                         .wants_qk = true,
                         .set = set});
            check_model({.value_dim = 0, .has_rank_3 = has_rank_3, .wants_qk = true, .set = set});
        }
    }
}

TEST_CASE("onnx: a past and new tokens that lie in the present already stay where they are") {
    onnx_case c{.past = 4, .wants_present = true, .set = {.is_causal = 1}};
    onnx_tensors want = make_tensors(c);
    make_call(c, want).run();

    // The caller's buffers have room for 16 tokens per head.
    const count room = 16;
    onnx_tensors t = make_tensors(c);
    std::vector<float> keys(static_cast<std::size_t>(c.batch * c.kv_heads * room * c.key_dim), 7.0F);
    const shape strides = {c.kv_heads * room * c.key_dim, room * c.key_dim, c.key_dim, 1};
    for (count head = 0; head < c.batch * c.kv_heads; ++head) {
        std::copy_n(t.past_key.floats.begin() + head * 4 * c.key_dim, 4 * c.key_dim,
                    keys.begin() + head * room * c.key_dim);
    }
    onnx_call call = make_call(c, t);
    call.given.past_key =
        onnx::const_array{keys.data(), onnx::data_type::float32, t.past_key.extents, strides};
    call.wanted.present_key =
        onnx::array{keys.data(), onnx::data_type::float32, t.present_key.extents, strides};
    call.run();
    CHECK(t.y.floats == want.y.floats);
    for (count head = 0; head < c.batch * c.kv_heads; ++head) {
        const auto* got = keys.data() + head * room * c.key_dim;
        CHECK(std::equal(got, got + 9 * c.key_dim, want.present_key.floats.data() + head * 9 * c.key_dim));
        CHECK(std::count(got + 9 * c.key_dim, got + room * c.key_dim, 7.0F) == (room - 9) * c.key_dim);
    }

    // Now the new keys, too.
    t.y.floats.assign(t.y.floats.size(), 0);
    call.given.k = {keys.data() + 4 * c.key_dim, onnx::data_type::float32, t.k.extents, strides};
    call.run();
    CHECK(t.y.floats == want.y.floats);
}

TEST_CASE("onnx: finite mask values down to the lowest float weigh nothing beside others") {
    const onnx_case c{.mask = shape{1, 5}};
    onnx_tensors t = make_tensors(c);
    t.mask.floats = {0, -infinity, 1, -infinity, 0};
    onnx_tensors want = t;
    make_call(c, want).run();
    t.mask.floats = {0, std::numeric_limits<float>::lowest(), 1, -1e9F, 0};
    make_call(c, t).run();
    CHECK(t.y.floats == want.y.floats);
}

TEST_CASE("onnx: no copy of the inputs is made, but of a past without a present") {
    onnx_case c{
        .batch = 1, .queries = 1, .new_keys = 4096, .key_dim = 64, .value_dim = 64, .has_rank_3 = true};
    const auto largest_allocation = [](const onnx_case& which) {
        onnx_tensors t = make_tensors(which);
        const onnx_call call = make_call(which, t);
        const allocation_counter counter;
        call.run({.threads = 1});
        return counter.largest();
    };
    constexpr std::size_t copied = std::size_t{4} * 2 * 4097 * 64;
    CHECK(largest_allocation(c) < copied / 2);
    c.past = 1;
    CHECK(largest_allocation(c) == copied);
    c.wants_present = true;
    CHECK(largest_allocation(c) < copied / 2);
}

}  // namespace tilewise_tests

// Wrong arguments of the ONNX operator: each is refused by the operator's name for it, with what was given
// and what is allowed, before anything is written.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "onnx_cases.hpp"
#include "refusals.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

namespace onnx = tilewise::onnx;
using count = std::int64_t;
using onnx::data_type;

constexpr count largest = std::numeric_limits<count>::max();

/// A call with a past, a mask, sinks and all outputs.
onnx_case with_past() {
    return {.past = 4, .mask = shape{3, 9}, .has_sinks = true, .wants_present = true, .wants_qk = true};
}
onnx_case with_lengths() { return {.mask = shape{3, 5}, .lengths = std::vector<count>{3, 5}}; }
onnx_case with_rank_3() { return {.past = 4, .has_rank_3 = true}; }

using change = std::function<void(onnx_call&, onnx_tensors&)>;

/// Checks that the call is refused once `spoil` has changed it, with all `parts` in the message.
void refuses(const onnx_case& which, const change& spoil, const std::vector<std::string>& parts) {
    onnx_tensors tensors = make_tensors(which);
    const onnx_tensors before = tensors;
    onnx_call call = make_call(which, tensors);
    spoil(call, tensors);
    check_refusal([&] { call.run(); }, parts);
    CHECK(tensors.y.floats == before.y.floats);
    CHECK(tensors.present_key.floats == before.present_key.floats);
    CHECK(tensors.present_value.floats == before.present_value.floats);
    CHECK(tensors.qk.floats == before.qk.floats);
}

void refuses(const change& spoil, const std::vector<std::string>& parts) {
    refuses(with_past(), spoil, parts);
}

/// The shape of one argument is replaced.
template <class Pick>
void refuses_shape(const onnx_case& which, const Pick& pick, const shape& wrong,
                   const std::vector<std::string>& parts) {
    refuses(
        which, [&](onnx_call& c, onnx_tensors&) { pick(c).shape = wrong; }, parts);
}

auto& q_of(onnx_call& c) { return c.given.q; }
auto& k_of(onnx_call& c) { return c.given.k; }
auto& v_of(onnx_call& c) { return c.given.v; }
auto& mask_of(onnx_call& c) { return *c.given.attn_mask; }
auto& past_key_of(onnx_call& c) { return *c.given.past_key; }
auto& past_value_of(onnx_call& c) { return *c.given.past_value; }
auto& lengths_of(onnx_call& c) { return *c.given.nonpad_kv_seqlen; }
auto& sinks_of(onnx_call& c) { return *c.given.head_sink; }
auto& y_of(onnx_call& c) { return c.wanted.y; }
auto& present_key_of(onnx_call& c) { return *c.wanted.present_key; }
auto& present_value_of(onnx_call& c) { return *c.wanted.present_value; }
auto& qk_of(onnx_call& c) { return *c.wanted.qk_matmul_output; }

}  // namespace

TEST_CASE("onnx arguments: shapes") {
    refuses_shape(with_past(), q_of, {2, 4}, {"Q", "rank 2", "3 or 4"});
    refuses_shape(with_past(), q_of, {2, 4, -3, 4}, {"Q", "[2, 4, -3, 4]", "at least 0"});
    refuses_shape(with_past(), q_of, {2, 3, 3, 4}, {"K", "2 heads", "3", "multiple"});
    refuses_shape(with_past(), k_of, {2, 5, 8}, {"K", "rank 3", "4"});
    refuses_shape(with_past(), k_of, {1, 2, 5, 4}, {"K", "batch", "1", "2"});
    refuses_shape(with_past(), k_of, {2, 2, 5, 3}, {"K", "head_dim", "3", "4"});
    refuses_shape(with_past(), v_of, {2, 1, 5, 3}, {"V", "heads", "1", "2"});
    refuses_shape(with_past(), v_of, {2, 2, 4, 3}, {"V", "tokens", "4", "5"});
    refuses_shape(with_past(), past_key_of, {2, 4, 8}, {"past_key", "rank 3", "4"});
    refuses_shape(with_past(), past_key_of, {2, 1, 4, 4}, {"past_key", "heads", "1", "2"});
    refuses_shape(with_past(), past_key_of, {2, 2, 4, 3}, {"past_key", "head_dim", "3", "4"});
    refuses_shape(with_past(), past_value_of, {2, 2, 3, 3}, {"past_value", "tokens", "3", "4"});
    refuses_shape(with_past(), y_of, {2, 3, 12}, {"Y", "rank 3", "4"});
    refuses_shape(with_past(), y_of, {2, 4, 3, 4}, {"Y", "head_dim", "4", "3"});
    refuses_shape(with_past(), present_key_of, {2, 2, 5, 4}, {"present_key", "tokens", "5", "9"});
    refuses_shape(with_past(), present_value_of, {2, 2, 9, 4}, {"present_value", "head_dim", "4", "3"});
    refuses_shape(with_past(), qk_of, {2, 4, 3, 5}, {"qk_matmul_output", "last extent", "5", "9"});
    refuses_shape(with_past(), qk_of, {2, 2, 3, 9}, {"qk_matmul_output", "heads", "2", "4"});
    refuses_shape(with_past(), sinks_of, {2}, {"head_sink", "[2]", "[4]"});
    refuses_shape(with_past(), sinks_of, {4, 1}, {"head_sink", "[4, 1]", "[4]"});
    refuses_shape(with_rank_3(), q_of, {2, 3, 18}, {"Q", "18", "q_num_heads", "4"});
    refuses_shape(with_rank_3(), v_of, {2, 5, 7}, {"V", "7", "kv_num_heads", "2"});
    const auto set_strides = [](onnx_call& c, onnx_tensors& t) { c.given.q.strides = t.lengths_shape; };
    refuses(set_strides, {"Q", "1 strides", "4 axes"});
}

TEST_CASE("onnx arguments: element types") {
    const auto type = [](auto pick, data_type wrong) {
        return [pick, wrong](onnx_call& c, onnx_tensors&) { pick(c).type = wrong; };
    };
    refuses(type(q_of, data_type::float16), {"Q", "float16", "float32"});
    refuses(type(k_of, data_type::bfloat16), {"K", "bfloat16", "float32"});
    refuses(type(v_of, data_type::float64), {"V", "float64", "float32"});
    refuses(type(past_key_of, data_type::float16), {"past_key", "float16", "float32"});
    refuses(type(y_of, data_type::float16), {"Y", "float16", "float32"});
    refuses(type(present_value_of, data_type::float16), {"present_value", "float16", "float32"});
    refuses(type(qk_of, data_type::float64), {"qk_matmul_output", "float64", "float32"});
    refuses(type(sinks_of, data_type::float16), {"head_sink", "float16", "float32"});
    refuses(type(mask_of, static_cast<data_type>(8)), {"attn_mask", "number 8"});
    const std::pair<data_type, const char*> integers[] = {
        {data_type::int8, "int8"},     {data_type::int16, "int16"},   {data_type::int32, "int32"},
        {data_type::int64, "int64"},   {data_type::uint8, "uint8"},   {data_type::uint16, "uint16"},
        {data_type::uint32, "uint32"}, {data_type::uint64, "uint64"}, {data_type::float16, "float16"}};
    for (const auto& [wrong, name] : integers) {
        refuses(type(mask_of, wrong), {"attn_mask", name, "boolean or float32"});
    }
    refuses(with_lengths(), type(lengths_of, data_type::int32), {"nonpad_kv_seqlen", "int32", "int64"});
}

TEST_CASE("onnx arguments: masks") {
    refuses_shape(with_past(), mask_of, {}, {"attn_mask", "rank 0", "1 to 4"});
    refuses_shape(with_past(), mask_of, {1, 1, 1, 3, 9}, {"attn_mask", "rank 5", "1 to 4"});
    refuses_shape(with_past(), mask_of, {2, 9}, {"attn_mask", "tokens", "2", "3 or 1"});
    refuses_shape(with_past(), mask_of, {2, 3, 4}, {"attn_mask", "heads", "2", "4 or 1"});
    refuses_shape(with_past(), mask_of, {3, 1, 1, 9}, {"attn_mask", "batch", "3", "2 or 1"});
    refuses_shape(with_past(), mask_of, {1, 10}, {"attn_mask", "10", "at most 9"});
    refuses_shape(with_lengths(), mask_of, {3, 4}, {"attn_mask", "4", "at least 5", "nonpad_kv_seqlen"});
}

TEST_CASE("onnx arguments: lengths") {
    const auto with = [](std::vector<count> lengths) {
        onnx_case c = with_lengths();
        c.lengths = std::move(lengths);
        return c;
    };
    const change nothing = [](onnx_call&, onnx_tensors&) {};
    refuses(with({-1, 2}), nothing, {"nonpad_kv_seqlen", "-1", "0 to 5"});
    refuses(with({2, 6}), nothing, {"nonpad_kv_seqlen", "6", "0 to 5"});
    refuses_shape(with_lengths(), lengths_of, {1}, {"nonpad_kv_seqlen", "[1]", "[2]", "batch"});
    onnx_case both = with_past();
    both.lengths = std::vector<count>{1, 1};
    refuses(both, nothing, {"nonpad_kv_seqlen", "past"});
    both.past = std::nullopt;
    both.mask = std::nullopt;
    refuses(both, nothing, {"nonpad_kv_seqlen", "present"});
    const auto null = [](onnx_call& c, onnx_tensors&) { lengths_of(c).data = nullptr; };
    refuses(with_lengths(), null, {"nonpad_kv_seqlen", "null"});

    // As many as no memory has, of a batch without tokens.
    const std::array<count, 4> none = {count{1} << 61, 1, 0, 1};
    const std::array<count, 1> batch = {none[0]};
    const count length = 0;
    onnx::inputs given;
    given.q.shape = given.k.shape = given.v.shape = none;
    given.nonpad_kv_seqlen = onnx::const_array{&length, onnx::data_type::int64, batch};
    onnx::outputs wanted;
    wanted.y.shape = none;
    const std::string refusal = refusal_of([&] { onnx::attention(given, {}, wanted); });
    CHECK_MESSAGE(refusal.find("nonpad_kv_seqlen: 2305843009213693952 elements") != std::string::npos,
                  refusal);
}

TEST_CASE("onnx arguments: attributes") {
    const auto refuses_set = [](const onnx::attributes& set, const std::vector<std::string>& parts) {
        onnx_case which = with_past();
        which.set = set;
        refuses(
            which, [](onnx_call&, onnx_tensors&) {}, parts);
    };
    refuses_set({.is_causal = 2}, {"is_causal", "2", "0 or 1"});
    refuses_set({.q_num_heads = 3}, {"q_num_heads", "3", "Q", "4"});
    refuses_set({.kv_num_heads = 4}, {"kv_num_heads", "4", "K", "2"});
    refuses_set({.q_num_heads = 0}, {"q_num_heads", "0", "at least 1"});
    refuses_set({.qk_matmul_output_mode = 4}, {"qk_matmul_output_mode", "4", "0 to 3"});
    refuses_set({.scale = infinity}, {"scale", "inf", "finite"});
    refuses_set({.softcap = -1.0F}, {"softcap", "-1", "positive"});
    refuses_set({.softcap = quiet_nan}, {"softcap", "nan", "finite"});
    refuses_set({.softmax_precision = 2}, {"softmax_precision", "2", "1", "10", "11", "16"});
    refuses_set({.left_window_size = -2}, {"left_window_size", "-2", "-1"});
    refuses_set({.right_window_size = -3}, {"right_window_size", "-3", "-1"});
    const auto no_heads = [](onnx_call& c, onnx_tensors&) { c.set.kv_num_heads.reset(); };
    refuses(with_rank_3(), no_heads, {"kv_num_heads", "not given", "K"});
}

TEST_CASE("onnx arguments: pairs") {
    refuses([](onnx_call& c, onnx_tensors&) { c.given.past_key.reset(); },
            {"past_key", "not given", "past_value"});
    refuses([](onnx_call& c, onnx_tensors&) { c.given.past_value.reset(); }, {"past_value", "not given"});
    refuses([](onnx_call& c, onnx_tensors&) { c.wanted.present_key.reset(); }, {"present_key", "not given"});
    refuses([](onnx_call& c, onnx_tensors&) { c.wanted.present_value.reset(); },
            {"present_value", "not given", "present_key"});
}

TEST_CASE("onnx arguments: memory") {
    refuses([](onnx_call& c, onnx_tensors&) { c.given.q.data = nullptr; }, {"Q", "null"});
    refuses([](onnx_call& c, onnx_tensors&) { c.wanted.y.data = nullptr; }, {"Y", "null"});
    // The smaller tensor is put into the larger one, so that it overlaps nothing else.
    refuses([](onnx_call& c, onnx_tensors& t) { c.wanted.y.data = t.q.floats.data(); },
            {"Y", "overlaps", "Q"});
    refuses([](onnx_call& c, onnx_tensors& t) { sinks_of(c).data = t.y.floats.data(); },
            {"Y", "overlaps", "head_sink"});
    refuses([](onnx_call& c, onnx_tensors& t) { c.given.k.data = t.present_key.floats.data(); },
            {"present_key", "overlaps", "K"});
    refuses([](onnx_call& c, onnx_tensors& t) { past_value_of(c).data = t.present_value.floats.data(); },
            {"present_value", "overlaps", "past_value"});
    refuses([](onnx_call& c, onnx_tensors& t) { present_value_of(c).data = t.present_key.floats.data(); },
            {"present_value", "overlaps", "present_key"});
    refuses([](onnx_call& c, onnx_tensors& t) { c.wanted.y.data = t.qk.floats.data(); },
            {"qk_matmul_output", "overlaps", "Y"});
    refuses([](onnx_call& c, onnx_tensors& t) { mask_of(c).data = t.qk.floats.data(); },
            {"qk_matmul_output", "overlaps", "attn_mask"});
    const shape same_place = {0, 12, 3, 1};
    refuses([&](onnx_call& c, onnx_tensors&) { c.wanted.y.strides = same_place; }, {"Y", "overlap", "batch"});
    const shape too_far = {largest, 1, 1, 1};
    refuses([&](onnx_call& c, onnx_tensors&) { c.given.k.strides = too_far; }, {"K", "63 bits"});
}

TEST_CASE("onnx arguments: resources") {
    const onnx_case which = with_past();
    onnx_tensors t = make_tensors(which);
    const onnx_call call = make_call(which, t);
    CHECK_THROWS_WITH_AS(call.run({.threads = -1}), doctest::Contains("threads: -1"), std::invalid_argument);
    CHECK(std::count(t.present_key.floats.begin(), t.present_key.floats.end(), t.present_key.floats[0]) ==
          static_cast<count>(t.present_key.floats.size()));
}

}  // namespace tilewise_tests

// What attention_stream refuses, by name, and that nothing is changed or written then.

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <tilewise/stream.hpp>
#include <utility>
#include <vector>

#include "allocation_counter.hpp"
#include "cases.hpp"
#include "streams.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::attention_stream;
using tilewise::element_type;
using tilewise::options;

constexpr attention_case sizes{
    .batch = 2, .heads = 4, .kv_heads = 2, .queries = 6, .keys = 200, .key_dim = 4, .value_dim = 3};

/// The error's message must have all parts.
template <class Error = std::invalid_argument>
void refuses(const std::function<void()>& call, const std::vector<std::string>& parts) {
    std::string message;
    try {
        call();
    } catch (const Error& error) { message = error.what(); }
    INFO("message: ", message);
    REQUIRE(message != "");
    for (const std::string& part : parts) {
        INFO("wanted: ", part);
        CHECK(message.find(part) != std::string::npos);
    }
}

void refuses_to_start(const options& how, const std::vector<std::string>& parts,
                      const tilewise::stream_sizes& of = stream_sizes_of(sizes)) {
    const inputs given = make_inputs(sizes);
    refuses([&] { const attention_stream stream(given.q.view(), of, how); }, parts);
}

}  // namespace

TEST_CASE("stream arguments: options that need all keys, by name") {
    const std::vector<std::uint8_t> bytes(10000);
    const std::vector<float> floats(10000);
    const std::vector<std::int32_t> keys(10000);
    const std::vector<count> counts = {0, 6};
    std::vector<float> written(10000);
    const tilewise::const_tensor mask(bytes.data(), element_type::boolean, {1, 1, 6, 200}, {0, 0, 200, 1});
    const tilewise::const_tensor range(keys.data(), element_type::i32, {1, 1, 6, 1}, {0, 0, 1, 1});
    const tilewise::tensor rows = tilewise::row_values(written.data(), 2, 4, 6);
    refuses_to_start({.mask = mask}, {"mask: given"});
    refuses_to_start({.blocks = {mask, 1, 1}}, {"blocks: given"});
    refuses_to_start({.bias = {floats.data(), element_type::f32, {1, 1, 6, 200}, {0, 0, 200, 1}}},
                     {"bias: given"});
    refuses_to_start({.ranges = {range, range}}, {"ranges: given"});
    refuses_to_start({.key_lengths = counts}, {"key_lengths: given"});
    refuses_to_start({.query_starts = counts}, {"query_starts: given"});
    refuses_to_start({.key_starts = counts}, {"key_starts: given"});
    refuses_to_start({.lse = rows}, {"lse: given", "finish"});
    refuses_to_start({.extra = {.row_maximum = rows}}, {"extra.row_maximum: given", "finish"});
    refuses_to_start({.extra = {.entropy = rows}}, {"extra.entropy: given"});
    refuses_to_start({.extra = {.key_weights = rows}}, {"extra.key_weights: given"});
    refuses_to_start({.extra = {.weights = rows}}, {"extra.weights: given"});
    refuses_to_start({.extra = {.weight_rows = counts}}, {"extra.weights: given"});
}

TEST_CASE("stream arguments: other options are checked as in a call") {
    refuses_to_start({.scale = quiet_nan}, {"scale: ", "finite"});
    refuses_to_start({.key_position = -1}, {"key_position: -1"});
    refuses_to_start({.window_left = -1}, {"window_left: -1"});
    refuses_to_start({.threads = -1}, {"threads: -1"});
    const std::vector<float> slopes(3);
    refuses_to_start({.sinks = slopes}, {"sinks: 3 values", "4"});
}

TEST_CASE("stream arguments: sizes") {
    refuses_to_start({}, {"kv_heads: 3 given", "4"}, {.kv_heads = 3, .value_dim = 3});
    refuses_to_start({}, {"kv_heads: -1 given"}, {.kv_heads = -1, .value_dim = 3});
    refuses_to_start({}, {"kv_heads: 0 given"}, {.kv_heads = 0, .value_dim = 3});
    refuses_to_start({}, {"value_dim: -1 given"}, {.kv_heads = 2, .value_dim = -1});
    refuses_to_start({}, {"value_dim", "2^40"}, {.kv_heads = 2, .value_dim = count{1} << 41});
    refuses_to_start({}, {"total_keys: -1 given"}, {.kv_heads = 2, .value_dim = 3, .total_keys = -1});
    const inputs given = make_inputs(sizes);
    tilewise::const_tensor q = given.q.view();
    q.type = element_type::i8;
    refuses([&] { const attention_stream stream(q, {.value_dim = 3}); }, {"q: ", "i8"});
    q = given.q.view();
    q.data = nullptr;
    refuses([&] { const attention_stream stream(q, {.value_dim = 3}); }, {"q: null data"});
    CHECK_THROWS_AS(attention_stream(given.q.view(), {.value_dim = count{1} << 40}), std::bad_alloc);
}

TEST_CASE("stream arguments: positions must be known where they matter") {
    const tilewise::stream_sizes unknown{.kv_heads = 2, .value_dim = 3};
    const std::vector<float> slopes(4);
    const std::vector<count> documents = {0, 100};
    const auto nothing = [](void*, const tilewise::score_tile&) noexcept {};
    const std::pair<options, std::string> cases[] = {
        {{.causal = tilewise::causal::bottom_right}, "causal"},
        {{.window_left = 5}, "window_left"},
        {{.window_right = 5}, "window_right"},
        {{.attention_chunk = 5}, "attention_chunk"},
        {{.documents = documents}, "documents"},
        {{.alibi_slopes = slopes}, "alibi_slopes"},
        {{.score_function = {nothing, nullptr}}, "score_function"}};
    const inputs given = make_inputs(sizes);
    for (const auto& one : cases) {
        refuses_to_start(one.first, {"total_keys: none given", "query_position", one.second}, unknown);
        options placed = one.first;
        placed.query_position = 3;
        CHECK_NOTHROW(attention_stream(given.q.view(), unknown, placed));
    }
    CHECK_NOTHROW(attention_stream(given.q.view(), unknown, {.causal = tilewise::causal::top_left}));
    CHECK_NOTHROW(attention_stream(given.q.view(), unknown, {.prefix = 7}));
}

TEST_CASE("stream arguments: pieces, of which nothing is taken then") {
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, {});
    attention_stream stream = stream_over(sizes, given, {}, {130});
    const auto k = tilewise::const_tensor(given.k.view()).slice(tilewise::axis::tokens, 130, 70);
    const auto v = tilewise::const_tensor(given.v.view()).slice(tilewise::axis::tokens, 130, 70);
    const auto refuses_pieces = [&](const auto& changed_k, const auto& changed_v,
                                    const std::vector<std::string>& parts) {
        refuses([&] { stream.add(changed_k, changed_v); }, parts);
        CHECK(stream.keys_added() == 130);
    };
    for (std::size_t a = 0; a < 4; ++a) {
        const char* const names[] = {"batch", "heads", "tokens", "head_dim"};
        tilewise::const_tensor changed = v;
        changed.extents[a] -= 1;
        refuses_pieces(k, changed, {"v: ", names[a]});
        changed = k;
        changed.extents[a] -= 1;
        refuses_pieces(changed, v, {a == 2 ? "v: " : "k: ", names[a]});
    }
    tilewise::const_tensor changed = k;
    changed.type = element_type::i32;
    refuses_pieces(changed, v, {"k: element type i32"});
    changed.type = element_type::i8;
    refuses_pieces(changed, v, {"k: no scales given"});
    changed = v;
    changed.data = nullptr;
    refuses_pieces(k, changed, {"v: null data"});
    refuses_pieces(given.k.view(), given.v.view(), {"k: tokens is 200", "at most 70", "total_keys"});
    stream.add(k, v);
    CHECK(first_difference(finished(stream, sizes), want) == "");
}

TEST_CASE("stream arguments: results, and nothing is written then") {
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, {});
    attention_stream stream = stream_over(sizes, given, {}, {199});
    row_results into(sizes);
    refuses([&] { stream.finish(into.out.view()); }, {"total_keys: 200 given", "199 keys"});
    add_keys(stream, given, 199, 1);
    for (std::size_t a = 0; a < 4; ++a) {
        const char* const names[] = {"batch", "heads", "tokens", "head_dim"};
        tilewise::tensor changed = into.out.view();
        changed.extents[a] -= 1;
        refuses([&] { stream.finish(changed); }, {"out: ", names[a]});
        changed = into.lse.view();
        changed.extents[a] += 1;
        refuses([&] { stream.finish(into.out.view(), changed); }, {"lse: ", names[a]});
        refuses([&] { stream.finish(into.out.view(), {}, changed); }, {"row_maximum: ", names[a]});
    }
    tilewise::tensor changed = into.out.view();
    changed.type = element_type::q8_0;
    refuses([&] { stream.finish(changed); }, {"out: element type q8_0"});
    changed = into.out.view();
    changed.strides[2] = 0;
    refuses([&] { stream.finish(changed); }, {"out: tokens has stride 0"});
    refuses([&] { stream.finish(into.out.view(), into.lse.view(), into.lse.view()); },
            {"row_maximum: its memory overlaps that of lse"});
    CHECK(into.out.damage() == "");
    CHECK(into.lse.damage() == "");
    CHECK(first_difference(finished(stream, sizes), want) == "");
}

namespace {

/// All functions throw and give the reason; then the stream is assigned to, and serves.
void check_unusable(attention_stream& stream, const std::string& reason, const inputs& given,
                    const std::vector<std::byte>& state) {
    row_results into(sizes);
    std::vector<std::byte> room(state.size());
    const std::pair<std::string, std::function<void()>> calls[] = {
        {"add", [&] { add_keys(stream, given, 0, 1); }},
        {"finish", [&] { stream.finish(into.out.view()); }},
        {"keys_added", [&] { static_cast<void>(stream.keys_added()); }},
        {"saved_bytes", [&] { static_cast<void>(stream.saved_bytes()); }},
        {"save", [&] { static_cast<void>(stream.save()); }},
        {"save", [&] { stream.save(room); }},
        {"restore", [&] { stream.restore(state); }}};
    for (const auto& call : calls) {
        refuses<std::logic_error>(call.second, {call.first + " called", reason});
    }
    CHECK(into.out.damage() == "");
    stream = attention_stream(given.q.view(), stream_sizes_of(sizes));
    CHECK(stream.keys_added() == 0);
}

}  // namespace

TEST_CASE("stream arguments: after finish, and after being moved from") {
    const inputs given = make_inputs(sizes);
    const row_results into(sizes);
    attention_stream done = stream_over(sizes, given, {}, {200});
    done.finish(into.out.view());
    attention_stream moved = stream_over(sizes, given, {}, {200});
    const attention_stream taken(std::move(moved));
    check_unusable(done, "finished", given, taken.save());
    check_unusable(moved, "moved from", given, taken.save());
}

TEST_CASE("stream arguments: where memory cannot be had, nothing changes") {
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, {});
    attention_stream stream = stream_over(sizes, given, {}, {100});
    row_results into(sizes);
    {
        const allocation_limit limit(1000);
        CHECK_THROWS_AS(add_keys(stream, given, 100, 100), std::bad_alloc);
        CHECK(stream.keys_added() == 100);
        CHECK_NOTHROW(add_keys(stream, given, 100, 20));
    }
    add_keys(stream, given, 120, 80);
    {
        const allocation_limit limit(1000);
        CHECK_THROWS_AS(stream.finish(into.out.view()), std::bad_alloc);
    }
    CHECK(into.out.damage() == "");
    CHECK(first_difference(finished(stream, sizes), want) == "");
}

}  // namespace tilewise_tests

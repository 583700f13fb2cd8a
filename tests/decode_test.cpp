// A prompt in one call, token by token as a model decodes, and in chunks of any size: the same bits, for
// every storage type and under masks, in calls and in streams.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tilewise/attention.hpp>
#include <tilewise/rotary.hpp>
#include <tilewise/stream.hpp>
#include <utility>
#include <vector>

#include "cases.hpp"
#include "quantized_tensors.hpp"
#include "support.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::axis;
using tilewise::const_tensor;
using tilewise::options;

constexpr attention_case base{
    .batch = 2, .heads = 4, .kv_heads = 2, .key_dim = 32, .value_dim = 64, .seed = 91};

/// Options of models in use, with the memory that they point to.
struct named_options {
    std::string name;
    options how;
};
std::vector<named_options> all_options() {
    static const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
    static const std::vector<float> sinks = {1.0F, -2.0F, 0.5F, -infinity};
    static const std::vector<count> documents = {0, 40, 171, 10000};
    std::vector<named_options> all = {
        {"causal", {}},
        {"window and prefix", {.window_left = 50, .prefix = 4}},
        {"ALiBi and soft cap", {.soft_cap = 5.0F, .alibi_slopes = slopes}},
        {"chunked attention and sinks", {.attention_chunk = 100, .sinks = sinks}},
        {"documents", {.documents = documents}},
    };
    for (named_options& one : all) { one.how.causal = tilewise::causal::bottom_right; }
    return all;
}

struct prompt {
    const_tensor q;
    const_tensor k;
    const_tensor v;
};

/// Query tokens first .. first + queries - 1 over the keys up to the last of them, as after appending these
/// to a cache, and over the prefix, which is there from the start; to their rows of the result.
void attend_to(const prompt& of, const results& into, options how, count first, count queries) {
    const count keys = std::min(of.k.tokens(), std::max(first + queries, how.prefix));
    how.query_position = first;
    how.lse = into.lse.view().slice(axis::tokens, first, queries);
    tilewise::attention(of.q.slice(axis::tokens, first, queries), of.k.slice(axis::tokens, 0, keys),
                        of.v.slice(axis::tokens, 0, keys),
                        into.out.view().slice(axis::tokens, first, queries), how);
}

void check_prompt(const prompt& of, const attention_case& sizes, const std::vector<named_options>& all) {
    const count n = sizes.queries;
    for (const named_options& one : all) {
        INFO(one.name, ", ", n, " tokens, k in ", show(of.k.type), ", v in ", show(of.v.type));
        const results want = make_results(sizes);
        attend_to(of, want, one.how, 0, n);
        for (const count chunk : {count{1}, count{7}, count{100}, count{128}, count{129}}) {
            if (chunk >= n) { continue; }
            INFO("in chunks of ", chunk);
            const results got = make_results(sizes);
            options how = one.how;
            how.threads = static_cast<int>(chunk % 3 + 1);
            for (count first = 0; first < n; first += chunk) {
                attend_to(of, got, how, first, std::min(chunk, n - first));
            }
            CHECK(first_difference(got, want) == "");
        }
        const results streamed = make_results(sizes);
        tilewise::attention_stream stream(
            of.q, {.kv_heads = sizes.kv_heads, .value_dim = sizes.value_dim, .total_keys = n}, one.how);
        for (count first = 0; first < n; first += 50) {
            const count keys = std::min<count>(50, n - first);
            stream.add(of.k.slice(axis::tokens, first, keys), of.v.slice(axis::tokens, first, keys));
        }
        stream.finish(streamed.out.view(), streamed.lse.view());
        CHECK(first_difference(streamed, want) == "");
    }
}

attention_case prompt_of(count tokens) {
    attention_case sizes = base;
    sizes.queries = sizes.keys = tokens;
    return sizes;
}

}  // namespace

TEST_CASE("decode: prefill, one token at a time, and chunks of any size") {
    for (const count tokens : {count{1}, count{128}, by_effort(150, 150, 300)}) {
        for (const tilewise::element_type type : float_types) {
            attention_case sizes = prompt_of(tokens);
            sizes.types = {type, type, type, type};
            const inputs given = make_inputs(sizes);
            check_prompt({given.q.view(), given.k.view(), given.v.view()}, sizes, all_options());
        }
    }
}

TEST_CASE("decode: the same with quantised keys and values") {
    const std::vector<named_options> all = all_options();
    std::size_t number = 0;
    for (const tilewise::element_type type : quantized_types) {
        const attention_case sizes = prompt_of(by_effort(131, 131, 200));
        const inputs given = make_inputs(sizes);
        const quantized_tensor k({sizes.batch, sizes.kv_heads, sizes.keys, sizes.key_dim}, type,
                                 row_order::bshd, 92);
        const quantized_tensor v({sizes.batch, sizes.kv_heads, sizes.keys, sizes.value_dim}, type,
                                 row_order::bhsd, 93);
        ++number;
        check_prompt({given.q.view(), k.view(), v.view()}, sizes,
                     {all[0], all[number % all.size() == 0 ? 1 : number % all.size()]});
    }
}

TEST_CASE("decode: a cache that drops what the window no longer sees") {
    const attention_case sizes = prompt_of(by_effort(200, 200, 400));
    const inputs given = make_inputs(sizes);
    const count window = 60;
    const options how{.causal = tilewise::causal::bottom_right, .window_left = window};
    const prompt all{given.q.view(), given.k.view(), given.v.view()};
    const results want = make_results(sizes);
    attend_to(all, want, how, 0, sizes.queries);
    const results got = make_results(sizes);
    for (count t = 0; t < sizes.queries; ++t) {
        options step = how;
        step.key_position = std::max<count>(0, t - window - t % 5);
        step.query_position = t;
        step.lse = got.lse.view().slice(axis::tokens, t, 1);
        const auto kept = [&](const const_tensor& of) {
            return of.slice(axis::tokens, step.key_position, t + 1 - step.key_position);
        };
        tilewise::attention(all.q.slice(axis::tokens, t, 1), kept(all.k), kept(all.v),
                            got.out.view().slice(axis::tokens, t, 1), step);
    }
    CHECK(first_difference(got, want) == "");
}

TEST_CASE("decode: rotary embedding token by token is that of the prompt") {
    for (const tilewise::element_type type : float_types) {
        const owned_tensor at_once({2, 3, 50, 32}, dense(), type);
        const owned_tensor by_token({2, 3, 50, 32}, dense(), type);
        at_once.fill_normal(94);
        by_token.fill_normal(94);
        tilewise::rotary_embedding(at_once.view(), {.first_position = 5});
        for (count t = 0; t < 50; ++t) {
            tilewise::rotary_embedding(by_token.view().slice(axis::tokens, t, 1), {.first_position = 5 + t});
        }
        CHECK(first_difference(by_token.view(), at_once.view()) == "");
    }
}

}  // namespace tilewise_tests

// The cache against a model that keeps every token: whatever is appended, forked, truncated and dropped,
// attention has the bits of attention() on keys and values that follow each other.

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <tilewise/kv_cache.hpp>
#include <vector>

#include "allocation_counter.hpp"
#include "cases.hpp"
#include "support.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::const_tensor;
using tilewise::element_type;
using tilewise::kv_cache;
using tilewise::kv_cache_options;

constexpr count heads = 4;
constexpr count kv_heads = 2;

kv_cache_options options_with(count page_tokens, count pages) {
    return {.kv_heads = kv_heads,
            .head_dim = 32,
            .value_dim = 64,
            .page_tokens = page_tokens,
            .pages = pages,
            .max_sequences = 4};
}

/// Row `token` of some endless sequence: its elements depend on nothing else.
owned_tensor rows_of(std::uint64_t sequence, count first, count tokens, count dim) {
    owned_tensor rows({1, kv_heads, tokens, dim});
    for (count h = 0; h < kv_heads; ++h) {
        for (count t = 0; t < tokens; ++t) {
            random_source random(sequence * 1000003 + static_cast<std::uint64_t>((first + t) * 64 + h));
            for (count i = 0; i < dim; ++i) { rows.at(0, h, t, i) = random.normal(); }
        }
    }
    return rows;
}

void append(kv_cache& cache, int to, std::uint64_t sequence, count tokens) {
    const count first = cache.length(to);
    cache.append(to, rows_of(sequence, first, tokens, 32).view(),
                 rows_of(sequence + 7, first, tokens, 64).view());
}

/// Attention of the last `queries` tokens of a sequence.
owned_tensor attend(kv_cache& cache, int sequence, count queries, const tilewise::options& how) {
    owned_tensor q({1, heads, queries, 32});
    q.fill_normal(static_cast<std::uint64_t>(cache.length(sequence)));
    owned_tensor out({1, heads, queries, 64});
    cache.attention(std::array{sequence}, q.view(), out.view(), how);
    return out;
}

/// The same from all tokens, in f16 or f32 side by side.
owned_tensor want(std::uint64_t sequence, count length, count queries, element_type type,
                  tilewise::options how) {
    owned_tensor q({1, heads, queries, 32});
    q.fill_normal(static_cast<std::uint64_t>(length));
    owned_tensor out({1, heads, queries, 64});
    const owned_tensor k32 = rows_of(sequence, 0, length, 32);
    const owned_tensor v32 = rows_of(sequence + 7, 0, length, 64);
    const owned_tensor k(k32.view().extents, dense(), type);
    const owned_tensor v(v32.view().extents, dense(), type);
    for (count h = 0; h < kv_heads; ++h) {
        for (count t = 0; t < length; ++t) {
            for (count i = 0; i < 64; ++i) {
                if (i < 32) { k.set(0, h, t, i, k32.at(0, h, t, i)); }
                v.set(0, h, t, i, v32.at(0, h, t, i));
            }
        }
    }
    tilewise::attention(q.view(), k.view(), v.view(), out.view(), how);
    return out;
}

}  // namespace

TEST_CASE("kv_cache: appended in any pieces, with pages of any size, it attends like contiguous keys") {
    const tilewise::options causal{.causal = tilewise::causal::bottom_right};
    for (const element_type type : {element_type::f32, element_type::f16}) {
        for (const count page_tokens : {1, 16, 100, 128, 256, 1000}) {
            kv_cache_options how = options_with(page_tokens, 1200 / page_tokens + 2);
            how.k_type = how.v_type = type;
            kv_cache cache(how);
            const int sequence = cache.add();
            for (const count tokens : {5, 1, 1, 120, 1, 130, 300}) {
                append(cache, sequence, 3, tokens);
                const count queries = std::min<count>(tokens, 9);
                INFO("pages of ", page_tokens, ", length ", cache.length(sequence));
                CHECK(first_difference(attend(cache, sequence, queries, causal).view(),
                                       want(3, cache.length(sequence), queries, type, causal).view()) == "");
            }
        }
    }
}

TEST_CASE("kv_cache: every storage type has the same bits with pages and contiguous") {
    for (const element_type k_type : {element_type::bf16, element_type::q8_0, element_type::q4_0,
                                      element_type::i8, element_type::e4m3, element_type::e5m2}) {
        kv_cache_options paged = options_with(16, 30);
        paged.k_type = k_type;
        paged.v_type = k_type == element_type::q4_0 ? element_type::i8 : element_type::q4_0;
        kv_cache_options whole = paged;
        whole.page_tokens = 384;
        whole.pages = 1;
        kv_cache a(paged);
        kv_cache b(whole);
        const int in_a = a.add();
        const int in_b = b.add();
        for (const count tokens : {3, 1, 200, 1}) {
            append(a, in_a, 5, tokens);
            for (count t = 0; t < tokens; ++t) { append(b, in_b, 5, 1); }
            CHECK(first_difference(attend(a, in_a, 1, {}).view(), attend(b, in_b, 1, {}).view()) == "");
        }
    }
}

TEST_CASE("kv_cache: uniform attention over many keys is exact in every storage type") {
    struct stored_exactly {
        element_type type;
        std::array<float, 2> values;
    };
    const count tokens = by_effort(8192, 65536, 65536);
    for (const stored_exactly& stored : {stored_exactly{element_type::f32, {1.0F, 100.0F}},
                                         stored_exactly{element_type::f16, {1.0F, 100.0F}},
                                         stored_exactly{element_type::bf16, {1.0F, 100.0F}},
                                         stored_exactly{element_type::q8_0, {127.0F, 63.5F}},
                                         stored_exactly{element_type::q4_0, {1.0F, 100.0F}},
                                         stored_exactly{element_type::i8, {127.0F, 63.5F}},
                                         stored_exactly{element_type::e4m3, {1.75F, 112.0F}},
                                         stored_exactly{element_type::e5m2, {1.75F, 112.0F}}}) {
        for (const float value : stored.values) {
            kv_cache_options how = options_with(256, tokens / 256);
            how.k_type = how.v_type = stored.type;
            kv_cache cache(how);
            const int sequence = cache.add();
            const owned_tensor v({1, kv_heads, tokens, 64});
            v.fill([=] { return value; });
            cache.append(sequence, rows_of(1, 0, tokens, 32).view(), v.view());
            for (const count queries : {1, 50}) {
                const owned_tensor zeros({1, heads, queries, 32});
                zeros.fill([] { return 0.0F; });
                const owned_tensor out({1, heads, queries, 64});
                cache.attention(std::array{sequence}, zeros.view(), out.view(), {});
                const owned_tensor same(out.view().extents);
                same.fill([=] { return value; });
                INFO(show(stored.type), ", ", value, ", ", queries, " queries");
                CHECK(first_difference(out.view(), same.view()) == "");
            }
        }
    }
}

TEST_CASE("kv_cache: forks share pages until one of them writes") {
    kv_cache cache(options_with(16, 20));
    const int trunk = cache.add();
    append(cache, trunk, 11, 40);  // three pages, the last half full
    CHECK(cache.free_pages() == 17);
    const int branch = cache.fork(trunk, 40);
    const int early = cache.fork(trunk, 20);
    CHECK(cache.free_pages() == 17);
    append(cache, branch, 11, 1);  // the same token as the trunk would get
    CHECK(cache.free_pages() == 16);
    append(cache, early, 11, 30);
    append(cache, trunk, 11, 25);
    for (const int sequence : {trunk, branch, early}) {
        CHECK(first_difference(attend(cache, sequence, 1, {}).view(),
                               want(11, cache.length(sequence), 1, element_type::f32, {}).view()) == "");
    }
    cache.remove(trunk);
    CHECK(first_difference(attend(cache, branch, 1, {}).view(),
                           want(11, 41, 1, element_type::f32, {}).view()) == "");
    cache.remove(branch);
    cache.remove(early);
    CHECK(cache.free_pages() == 20);
    CHECK(cache.add() == trunk);
}

TEST_CASE("kv_cache: truncated and grown again") {
    kv_cache cache(options_with(16, 20));
    const int sequence = cache.add();
    append(cache, sequence, 1, 100);
    const int other = cache.fork(sequence, 100);
    for (const count tokens : {90, 64, 17, 0}) {
        cache.truncate(sequence, tokens);
        append(cache, sequence, 1, 3);
        CHECK(cache.length(sequence) == tokens + 3);
        CHECK(first_difference(attend(cache, sequence, 1, {}).view(),
                               want(1, tokens + 3, 1, element_type::f32, {}).view()) == "");
    }
    CHECK(first_difference(attend(cache, other, 1, {}).view(),
                           want(1, 100, 1, element_type::f32, {}).view()) == "");
}

TEST_CASE("kv_cache: a window holds what it needs, and has the bits of the whole with that window") {
    for (const count window : {0, 1, 40, 200}) {
        for (const count page_tokens : {16, 128}) {
            kv_cache_options how = options_with(page_tokens, 40);
            how.window = window;
            kv_cache cache(how);
            const int sequence = cache.add();
            const tilewise::options local{.causal = tilewise::causal::bottom_right, .window_left = window};
            for (const count tokens : {30, 1, 1, 50, 200, 1, 1, 90}) {
                append(cache, sequence, 21, tokens);
                INFO("window ", window, ", pages of ", page_tokens, ", length ", cache.length(sequence));
                const count held = cache.length(sequence) - cache.first_position(sequence);
                CHECK(held <= window + tokens + page_tokens);
                CHECK(first_difference(attend(cache, sequence, std::min<count>(tokens, 60), local).view(),
                                       want(21, cache.length(sequence), std::min<count>(tokens, 60),
                                            element_type::f32, local)
                                           .view()) == "");
            }
        }
    }
}

TEST_CASE("kv_cache: several sequences of different lengths in one call") {
    kv_cache cache(options_with(16, 60));
    std::vector<int> sequences;
    for (const count tokens : {33, 1, 300}) {
        sequences.push_back(cache.add());
        append(cache, sequences.back(), static_cast<std::uint64_t>(tokens), tokens);
    }
    owned_tensor q({3, heads, 1, 32});
    q.fill_normal(4);
    const owned_tensor together({3, heads, 1, 64});
    cache.attention(sequences, q.view(), together.view(), {.threads = 2});
    for (std::size_t n = 0; n < sequences.size(); ++n) {
        const auto entry = static_cast<count>(n);
        const owned_tensor alone({1, heads, 1, 64});
        cache.attention(std::array{sequences[n]}, q.view().slice(tilewise::axis::batch, entry, 1),
                        alone.view());
        CHECK(first_difference(together.view().slice(tilewise::axis::batch, entry, 1), alone.view()) == "");
    }
}

TEST_CASE("kv_cache: all memory is allocated at once, and told exactly") {
    const allocation_counter counter;
    kv_cache cache(options_with(16, 20));
    CHECK(counter.bytes() >= cache.memory_bytes());
    CHECK(counter.bytes() <= cache.memory_bytes() + 64);
    const int sequence = cache.add();
    const owned_tensor k = rows_of(1, 0, 10, 32);
    const owned_tensor v = rows_of(2, 0, 10, 64);
    const allocation_counter later;
    cache.append(sequence, k.view(), v.view());
    cache.truncate(sequence, 7);
    cache.remove(cache.fork(sequence, 3));
    CHECK(later.bytes() == 0);
}

TEST_CASE("kv_cache: with a workspace of the planned size, attention allocates nothing") {
    kv_cache cache(options_with(16, 20));
    const int sequence = cache.add();
    append(cache, sequence, 1, 200);
    owned_tensor q({1, heads, 3, 32});
    q.fill_normal(1);
    const owned_tensor out({1, heads, 3, 64});
    const owned_tensor again({1, heads, 3, 64});
    const std::array sequences = {sequence};
    tilewise::options how{.causal = tilewise::causal::bottom_right, .threads = 1};
    cache.attention(sequences, q.view(), out.view(), how);
    const tilewise::plan plan = cache.plan_attention(sequences, q.view(), again.view(), how);
    CHECK(plan.visible_scores == heads * (200 + 199 + 198));
    std::vector<std::byte> memory(plan.scratch_bytes + 63);
    how.workspace = memory;
    const allocation_counter counter;
    cache.attention(sequences, q.view(), again.view(), how);
    CHECK(counter.requests() == 0);
    CHECK(first_difference(again.view(), out.view()) == "");
    how.workspace = std::span(memory).first(100);
    CHECK_THROWS_AS(cache.attention(sequences, q.view(), again.view(), how), std::invalid_argument);
    how.key_position = 1;
    CHECK_THROWS_AS(static_cast<void>(cache.plan_attention(sequences, q.view(), again.view(), how)),
                    std::invalid_argument);
}

TEST_CASE("kv_cache: what does not fit or does not exist is refused, and changes nothing") {
    kv_cache cache(options_with(16, 3));
    const int sequence = cache.add();
    append(cache, sequence, 1, 40);
    const owned_tensor k = rows_of(1, 0, 9, 32);
    const owned_tensor v = rows_of(2, 0, 9, 64);
    CHECK_THROWS_WITH_AS(
        cache.append(sequence, k.view(), v.view()),
        "tilewise: kv_cache: sequence 0 holds 40 tokens, 9 more would exceed the 48 that it may hold",
        std::length_error);
    const int other = cache.add();
    const owned_tensor many = rows_of(1, 0, 17, 32);
    const owned_tensor values = rows_of(1, 0, 17, 64);
    CHECK_THROWS_WITH_AS(cache.append(other, many.view(), values.view()),
                         "tilewise: kv_cache: 2 more pages are needed, 0 are free", std::length_error);
    CHECK(cache.length(other) == 0);
    CHECK_THROWS_AS(cache.append(other, v.view(), v.view()), std::invalid_argument);
    CHECK_THROWS_AS(cache.append(sequence, k.view(), many.view()), std::invalid_argument);
    CHECK_THROWS_AS(cache.append(7, k.view(), v.view()), std::invalid_argument);
    CHECK_THROWS_AS(cache.append(-1, k.view(), v.view()), std::invalid_argument);
    CHECK_THROWS_AS(cache.truncate(sequence, 41), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(cache.fork(sequence, -1)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(cache.length(2)), std::invalid_argument);
    CHECK(cache.length(sequence) == 40);
    CHECK(first_difference(attend(cache, sequence, 1, {}).view(),
                           want(1, 40, 1, element_type::f32, {}).view()) == "");
    static_cast<void>(cache.add());
    static_cast<void>(cache.add());
    CHECK_THROWS_AS(static_cast<void>(cache.add()), std::length_error);
    const std::vector<count> lengths = {1};
    CHECK_THROWS_AS(attend(cache, sequence, 1, {.key_lengths = lengths}), std::invalid_argument);
    // Numbers that would overflow, of tokens that are all in one place.
    const const_tensor one = k.view();
    for (const count tokens : {std::numeric_limits<count>::max(), count{1} << 62}) {
        const const_tensor same(one.data, one.type, {1, kv_heads, tokens, 32}, {0, 0, 0, 1});
        const const_tensor same_values(one.data, one.type, {1, kv_heads, tokens, 64}, {0, 0, 0, 0});
        CHECK_THROWS_AS(cache.append(sequence, same, same_values), std::length_error);
    }
    CHECK(cache.length(sequence) == 40);
    kv_cache_options far = options_with(count{1} << 40, count{1} << 31);
    CHECK_THROWS_AS(kv_cache{far}, std::bad_alloc);
    far = options_with(count{1} << 32, count{1} << 30);
    CHECK_THROWS_AS(kv_cache{far}, std::bad_alloc);
    far = options_with(1, 1);
    far.value_dim = std::numeric_limits<count>::max();
    far.v_type = element_type::f16;
    CHECK_THROWS_AS(kv_cache{far}, std::bad_alloc);
    kv_cache_options how = options_with(16, 3);
    how.k_type = element_type::q8_0;
    how.head_dim = 40;
    CHECK_THROWS_AS(kv_cache{how}, std::invalid_argument);
    how = options_with(0, 3);
    CHECK_THROWS_AS(kv_cache{how}, std::invalid_argument);
    how = options_with(16, 3);
    how.v_type = element_type::boolean;
    CHECK_THROWS_AS(kv_cache{how}, std::invalid_argument);
}

}  // namespace tilewise_tests

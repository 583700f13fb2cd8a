// Keys and values in pages: the bits of keys that follow each other, whatever the pages' size, order and
// strides; nothing is read of pages that nobody owns.

#include <doctest/doctest.h>
#include <array>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <tilewise/reference.hpp>
#include <utility>
#include <vector>

#include "all_results.hpp"
#include "cases.hpp"
#include "mask_cases.hpp"
#include "refusals.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::const_tensor;
using tilewise::element_type;

/// K and V of a case in pages of a pool, in random order, with pages of NaN between them.
struct paged_keys {
    count page_keys;
    count pages_per_entry;
    std::vector<std::int32_t> table;
    owned_tensor k;
    owned_tensor v;

    [[nodiscard]] const_tensor block_table(count batch) const {
        return {table.data(), element_type::i32, {batch, 1, 1, pages_per_entry}, {pages_per_entry, 0, 0, 1}};
    }
};

void copy_page(const owned_tensor& from, count b, count first, count keys, const owned_tensor& to,
               count page) {
    for (count h = 0; h < from.view().heads(); ++h) {
        for (count j = 0; j < keys; ++j) {
            for (count i = 0; i < from.view().head_dim(); ++i) {
                to.set(page, h, j, i, from.get(b, h, first + j, i));
            }
        }
    }
}

paged_keys in_pages(random_source& random, const attention_case& s, const inputs& given, count page_keys) {
    const count per_entry = (s.keys + page_keys - 1) / page_keys;
    const count pages = s.batch * per_entry + random.between(0, 3);
    const auto& where = all_layouts()[static_cast<std::size_t>(random.between(0, 3))];
    paged_keys made{page_keys,
                    per_entry,
                    {},
                    owned_tensor({pages, s.kv_heads, page_keys, s.key_dim}, where, s.types[1]),
                    owned_tensor({pages, s.kv_heads, page_keys, s.value_dim}, where, s.types[2])};
    std::vector<std::int32_t> order;
    for (count page = 0; page < pages; ++page) { order.push_back(static_cast<std::int32_t>(page)); }
    for (std::size_t n = order.size(); n > 1; --n) {
        std::swap(order[n - 1],
                  order[static_cast<std::size_t>(random.between(0, static_cast<count>(n) - 1))]);
    }
    for (count b = 0; b < s.batch; ++b) {
        for (count n = 0; n < per_entry; ++n) {
            const std::int32_t page = order[static_cast<std::size_t>(b * per_entry + n)];
            const count keys = std::min(page_keys, s.keys - n * page_keys);
            made.table.push_back(page);
            copy_page(given.k, b, n * page_keys, keys, made.k, page);
            copy_page(given.v, b, n * page_keys, keys, made.v, page);
        }
    }
    return made;
}

}  // namespace

namespace {

void check_pages(std::uint64_t seed, tilewise::arithmetic arithmetic) {
    random_source random(seed);
    const std::vector<count> page_sizes = {1, 3, 16, 64, 100, 128, 256};
    for (count number = 0; number < by_effort(40, 60, 250); ++number) {
        attention_case sizes;
        sizes.batch = random.between(1, 2);
        sizes.kv_heads = random.between(1, 2);
        sizes.heads = sizes.kv_heads * random.between(1, 3);
        sizes.queries = random.between(1, 3) == 1 ? random.between(1, 100) : random.between(1, 3);
        sizes.keys = random.between(1, random.between(1, 3) == 1 ? 900 : 150);
        sizes.key_dim = 16 * random.between(1, 4) + random.between(0, 1);
        sizes.value_dim = 16 * random.between(1, 4) + random.between(0, 1);
        if (number % 20 == 0) {  // so many that key heads may take turns
            sizes.kv_heads = sizes.heads = 8;
            sizes.queries = 1;
            sizes.keys = 2100;
            sizes.key_dim = sizes.value_dim = 64;
        }
        sizes.seed = random.bits();
        for (auto& type : sizes.types) { type = float_types[random.bits() % float_types.size()]; }
        sizes.arithmetic = arithmetic;
        if (arithmetic == tilewise::arithmetic::fastest) { sizes.types = bf16_types; }
        mask_case made = random_masks(random, sizes);
        // Masks are as wide as the longest entry.
        made.key_lengths.resize(static_cast<std::size_t>(sizes.batch), sizes.keys);
        made.key_lengths.front() = sizes.keys;
        made.how.key_lengths = made.key_lengths;
        made.how.key_position = random.between(0, 1) * 128;
        if (made.how.causal == tilewise::causal::top_left) { made.how.query_position.reset(); }
        const inputs given = make_inputs(sizes);
        const std::vector<count> rows = every(random.between(1, 40), sizes.queries);
        const all_results want = attend(sizes, given, made.how, rows);

        const paged_keys pages =
            in_pages(random, sizes, given, page_sizes[static_cast<std::size_t>(number) % page_sizes.size()]);
        INFO(show(sizes), ", ", made.names, ", pages of ", pages.page_keys);
        tilewise::options how = made.how;
        how.block_table = pages.block_table(sizes.batch);
        const all_results tiled(sizes, rows);
        const all_results naive(sizes, rows);
        const const_tensor q = given.q.view();
        how.threads = static_cast<int>(random.between(1, 3));
        tilewise::attention(q, pages.k.view(), pages.v.view(), tiled.out.view(), tiled.asked_for(how));
        tilewise::reference::attention(q, pages.k.view(), pages.v.view(), naive.out.view(),
                                       naive.asked_for(how));
        CHECK(first_difference(tiled, want) == "");
        CHECK(first_difference(naive, want) == "");
    }
}

}  // namespace

TEST_CASE("pages: any size and order has the bits of contiguous keys, with any options") {
    check_pages(51, tilewise::arithmetic::exact);
    check_pages(53, tilewise::arithmetic::fastest);
}

TEST_CASE("pages: packed queries, one sequence of pages each, each at its own position") {
    random_source random(52);
    const attention_case all{.heads = 4, .kv_heads = 2, .queries = 9, .keys = 1};
    const std::vector<count> starts = {0, 1, 1, 5, 9};
    const std::vector<count> lengths = {300, 7, 0, 129};
    const std::vector<count> positions = {0, 128, 512, 256};
    const inputs queries = make_inputs(all);
    const attention_case keys{.batch = 4, .heads = 4, .kv_heads = 2, .queries = 1, .keys = 300, .seed = 5};
    const inputs given = make_inputs(keys);
    const paged_keys pages = in_pages(random, keys, given, 128);
    const results got = make_results(all);
    tilewise::options how{.causal = tilewise::causal::bottom_right,
                          .key_positions = positions,
                          .window_left = 100,
                          .key_lengths = lengths,
                          .query_starts = starts,
                          .block_table = pages.block_table(4),
                          .lse = got.lse.view()};
    tilewise::attention(queries.q.view(), pages.k.view(), pages.v.view(), got.out.view(), how);
    for (count s = 0; s < 4; ++s) {
        const auto n = static_cast<std::size_t>(s);
        const count rows = starts[n + 1] - starts[n];
        attention_case one = all;
        one.queries = rows;
        const results want = make_results(one);
        const auto part = [&](const owned_tensor& of) {
            return of.view().slice(tilewise::axis::batch, s, 1).slice(tilewise::axis::tokens, 0, lengths[n]);
        };
        tilewise::attention(
            queries.q.view().slice(tilewise::axis::tokens, starts[n], rows), part(given.k), part(given.v),
            want.out.view(),
            {.causal = how.causal, .key_position = positions[n], .window_left = 100, .lse = want.lse.view()});
        CHECK(first_difference(got.out.view().slice(tilewise::axis::tokens, starts[n], rows),
                               want.out.view()) == "");
        CHECK(first_difference(got.lse.view().slice(tilewise::axis::tokens, starts[n], rows),
                               want.lse.view()) == "");
    }
}

TEST_CASE("pages: wrong tables are refused by name") {
    const inputs given = make_inputs(refused_sizes);  // batch 2, 9 keys: two pages of 9
    const results got = make_results(refused_sizes);
    std::vector<std::int32_t> table = {1, 0, 0, 1};
    std::vector<count> lengths = {9, 18};
    tilewise::options how{.key_lengths = lengths,
                          .block_table = {table.data(), element_type::i32, {2, 1, 1, 2}, {2, 0, 0, 1}}};
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
    const owned_tensor out(got.out.view().extents);
    const auto refuse = [&](const std::vector<std::string>& parts) { refuses(given, out, how, parts); };
    lengths = {9, 19};
    refuse({"key_lengths", "19", "sequence 1", "18"});
    lengths = {9, 18};
    table[3] = 2;
    refuse({"block_table", "page 2", "sequence 1", "at 1", "from 0 to 1"});
    table[3] = -1;
    refuse({"block_table", "page -1"});
    lengths = {9, 9};  // that entry is not needed now
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
    how.key_lengths = {};
    refuse({"key_lengths", "block_table"});
    how.key_lengths = lengths;
    how.block_table.type = element_type::f32;
    refuse({"block_table", "f32", "i32"});
    how.block_table.type = element_type::i32;
    how.block_table.extents[0] = 1;
    refuse({"block_table", "batch is 1", "2"});
    how.block_table.extents = {2, 2, 1, 2};
    refuse({"block_table", "heads is 2", "1"});
    how.block_table.extents = {2, 1, 1, 2};
    // More keys than 63 bits count, in one place.
    const_tensor k = given.k.view();
    const_tensor v = given.v.view();
    for (const_tensor* const pool : {&k, &v}) {
        pool->extents[2] = count{1} << 40;
        pool->strides[2] = 0;
    }
    tilewise::options wide = how;
    wide.block_table.extents[3] = count{1} << 40;
    wide.block_table.strides[3] = 0;
    CHECK(refusal_of([&] { tilewise::attention(given.q.view(), k, v, out.view(), wide); }).find("63 bits") !=
          std::string::npos);
    const std::vector<count> positions = {1};
    how.key_positions = positions;
    refuse({"key_positions", "1 values", "2 sequences"});
}

}  // namespace tilewise_tests

// The tiles that a caller's score function is shown: which scores, with which numbers.

#include <doctest/doctest.h>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <vector>

#include "cases.hpp"
#include "score_functions.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::axis;
using tilewise::causal;
using tilewise::score_tile;

/// A score that depends on each of the numbers that the function is told; `first_batch` is added to the
/// tile's.
void add_numbers(void* context, const score_tile& tile) noexcept {
    const count batch = tile.batch + *static_cast<const count*>(context);
    for_each_score(tile, [&](count i, count j, float& score) {
        const count query = tile.first_query + i;
        const count position = tile.query_position + i;
        const count mixed = batch * 7 + tile.head * 5 + query * 3 + position * 11 + j * 13;
        score += 0.125F * static_cast<float>(mixed % 17);
    });
}

/// What a function sees, for each batch entry, head, query and key.
struct visits {
    attention_case sizes;
    count query_position;
    std::vector<std::atomic<int>> times;
    std::vector<std::atomic<float>> scores;
    std::atomic<int> wrong_numbers = 0;

    visits(const attention_case& sizes_, count position)
        : sizes(sizes_),
          query_position(position),
          times(static_cast<std::size_t>(sizes.batch * sizes.heads * sizes.queries * sizes.keys)),
          scores(times.size()) {}

    [[nodiscard]] std::size_t place(count b, count h, count i, count j) const {
        return static_cast<std::size_t>(((b * sizes.heads + h) * sizes.queries + i) * sizes.keys + j);
    }
    [[nodiscard]] bool has(const score_tile& tile) const {
        return tile.batch >= 0 && tile.batch < sizes.batch && tile.head >= 0 && tile.head < sizes.heads &&
               tile.first_query >= 0 && tile.queries > 0 &&
               tile.first_query + tile.queries <= sizes.queries && tile.first_key >= 0 && tile.keys > 0 &&
               tile.first_key + tile.keys <= sizes.keys &&
               tile.query_position == query_position + tile.first_query;
    }
    static void note(void* context, const score_tile& tile) noexcept {
        auto& all = *static_cast<visits*>(context);
        if (!all.has(tile)) {
            ++all.wrong_numbers;
            return;
        }
        for_each_score(tile, [&](count i, count j, float& score) {
            const std::size_t at = all.place(tile.batch, tile.head, tile.first_query + i, j);
            ++all.times[at];
            all.scores[at] = score;
        });
    }
};

}  // namespace

TEST_CASE("score tiles: each visible score is shown, with its numbers, once scaled") {
    for (const int threads : {1, 3}) {
        const attention_case sizes = sizes_of(150, 300);
        const inputs given = make_inputs(sizes);
        visits seen(sizes, 100);
        const results into = make_results(sizes);
        const tilewise::options how{.scale = 0.5F,
                                    .causal = causal::bottom_right,
                                    .query_position = 100,
                                    .window_left = 60,
                                    .score_function = {visits::note, &seen},
                                    .threads = threads};
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), into.out.view(), how);
        CHECK(seen.wrong_numbers == 0);
        count missing = 0;
        count wrong = 0;
        count hidden_and_shown = 0;
        for (count b = 0; b < 2; ++b) {
            for (count h = 0; h < 6; ++h) {
                for (count i = 0; i < 150; ++i) {
                    for (count j = 0; j < 300; ++j) {
                        const std::size_t at = seen.place(b, h, i, j);
                        const bool visible = j <= i + 100 && j >= i + 40;
                        missing += visible && seen.times[at] == 0 ? 1 : 0;
                        hidden_and_shown += !visible && seen.times[at] != 0 ? 1 : 0;
                        if (seen.times[at] == 0) { continue; }
                        double score = 0;
                        for (count x = 0; x < 16; ++x) {
                            score += 0.5 * static_cast<double>(given.q.at(b, h, i, x)) *
                                     static_cast<double>(given.k.at(b, h / 3, j, x));
                        }
                        wrong += std::fabs(score - static_cast<double>(seen.scores[at])) <= 1e-5 ? 0 : 1;
                    }
                }
            }
        }
        CHECK(missing == 0);
        CHECK(wrong == 0);
        // Whole tiles that nobody sees are not shown: of 1800 rows with 239 hidden keys each, few are.
        CHECK(hidden_and_shown < 1800 * 239 / 2);
    }
}

TEST_CASE("score tiles: numbers begin at 0 in each packed sequence") {
    const attention_case sizes = sizes_of(200, 300, 1);
    const inputs given = make_inputs(sizes);
    const std::vector<count> query_starts = {0, 30, 30, 131, 200};
    const std::vector<count> key_starts = {0, 140, 141, 150, 300};
    count none = 0;
    const results got = make_results(sizes);
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(),
                        {.query_starts = query_starts,
                         .key_starts = key_starts,
                         .score_function = {add_numbers, &none},
                         .lse = got.lse.view()});
    for (std::size_t s = 0; s < 4; ++s) {
        const count queries = query_starts[s + 1] - query_starts[s];
        const count keys = key_starts[s + 1] - key_starts[s];
        const results want = make_results(sizes_of(queries, keys, 1));
        auto before = static_cast<count>(s);
        tilewise::attention(given.q.view().slice(axis::tokens, query_starts[s], queries),
                            given.k.view().slice(axis::tokens, key_starts[s], keys),
                            given.v.view().slice(axis::tokens, key_starts[s], keys), want.out.view(),
                            {.score_function = {add_numbers, &before}, .lse = want.lse.view()});
        const auto part = [&](const owned_tensor& x) {
            return x.view().slice(axis::tokens, query_starts[s], queries);
        };
        CHECK(first_difference(part(got.out), want.out.view()) == "");
        CHECK(first_difference(part(got.lse), want.lse.view()) == "");
    }
}

TEST_CASE("score tiles: a prompt in pieces is the whole prompt") {
    const attention_case whole = sizes_of(300, 300);
    const inputs given = make_inputs(whole);
    tilewise::options how{.score_function = {be_causal}};
    const results want = make_results(whole);
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(), how);
    for (const count first : {0, 100, 200}) {
        const results got = make_results(sizes_of(100, 300));
        how.query_position = first;
        tilewise::attention(given.q.view().slice(axis::tokens, first, 100), given.k.view(), given.v.view(),
                            got.out.view(), how);
        CHECK(first_difference(got.out.view(), want.out.view().slice(axis::tokens, first, 100)) == "");
    }
}

}  // namespace tilewise_tests

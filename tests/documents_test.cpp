// Boundaries of packed documents from ids of tokens.

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tilewise/documents.hpp>
#include <vector>

#include "cases.hpp"
#include "refusals.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::document_boundaries;
using numbers = std::vector<count>;

std::string message_of(const numbers& ids) {
    return refusal_of([&] { static_cast<void>(document_boundaries(ids)); });
}

}  // namespace

TEST_CASE("documents: boundaries are where ids change") {
    CHECK(document_boundaries(numbers{7, 7, 7, 2, 2}) == numbers{0, 3, 5});
    CHECK(document_boundaries(numbers{5}) == numbers{0, 1});
    CHECK(document_boundaries(numbers(1000, -1)) == numbers{0, 1000});
    CHECK(document_boundaries(numbers{INT64_MIN, 0, INT64_MAX}) == numbers{0, 1, 2, 3});
    CHECK(document_boundaries({}) == numbers{0, 0});
}

TEST_CASE("documents: an id that comes back is refused, with its position") {
    for (const char* const part : {"document_boundaries", "id 4 at position 5", "ended at position 2"}) {
        INFO("wanted: ", part);
        CHECK(message_of({4, 4, 4, 9, 9, 4, 8}).find(part) != std::string::npos);
    }
    CHECK(message_of({0, -3, 0}).find("id 0 at position 2") != std::string::npos);
    CHECK(message_of({-3, 0, -3}).find("id -3 at position 2") != std::string::npos);
    CHECK(message_of({0, 1, 2, 3}).empty());
}

TEST_CASE("documents: the boundaries mask as the ids say") {
    random_source random(11);
    const attention_case sizes{.queries = 150, .keys = 150, .key_dim = 16, .value_dim = 8};
    const inputs given = make_inputs(sizes);
    for (int number = 0; number < 20; ++number) {
        numbers ids;
        while (ids.size() < 150) {
            ids.resize(std::min<std::size_t>(150, ids.size() + 1 + random.bits() % 60),
                       static_cast<count>(random.bits()));
        }
        const numbers boundaries = document_boundaries(ids);
        std::vector<std::uint8_t> mask;
        for (const count query : ids) {
            for (const count key : ids) { mask.push_back(query == key ? 1 : 0); }
        }
        const results want = make_results(sizes);
        const results got = make_results(sizes);
        const results packed = make_results(sizes);
        tilewise::attention(
            given.q.view(), given.k.view(), given.v.view(), want.out.view(),
            {.mask = {mask.data(), tilewise::element_type::boolean, {1, 1, 150, 150}, {0, 0, 150, 1}}});
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(),
                            {.documents = boundaries});
        CHECK(first_difference(got.out.view(), want.out.view()) == "");
        // Sequences that are packed begin chunks of their own: near, not the same bits.
        tilewise::attention(given.q.view(), given.k.view(), given.v.view(), packed.out.view(),
                            {.query_starts = boundaries, .key_starts = boundaries});
        float furthest = 0;
        for (count i = 0; i < 150; ++i) {
            furthest = std::max(furthest, std::fabs(packed.out.at(0, 0, i, 3) - want.out.at(0, 0, i, 3)));
        }
        CHECK(furthest <= 1e-5F);
    }
}

}  // namespace tilewise_tests

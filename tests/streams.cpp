#include "streams.hpp"

#include <algorithm>
#include <cstddef>
#include <tilewise/attention.hpp>

namespace tilewise_tests {

using count = std::int64_t;

row_results::row_results(const attention_case& sizes, const layout& where)
    : out({sizes.batch, sizes.heads, sizes.queries, sizes.value_dim}, where, sizes.types[3]),
      lse({sizes.batch, sizes.heads, sizes.queries, 1}, where),
      row_maximum({sizes.batch, sizes.heads, sizes.queries, 1}, where) {}

std::string first_difference(const row_results& got, const row_results& want) {
    return first_difference({{"out", got.out.view(), want.out.view()},
                             {"lse", got.lse.view(), want.lse.view()},
                             {"row_maximum", got.row_maximum.view(), want.row_maximum.view()}});
}

row_results at_once(const attention_case& sizes, const inputs& given, tilewise::options how) {
    row_results made(sizes);
    how.lse = made.lse.view();
    how.extra.row_maximum = made.row_maximum.view();
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), made.out.view(), how);
    return made;
}

std::vector<count> equal_pieces(count keys, count length) {
    std::vector<count> pieces;
    for (count first = 0; first < keys; first += length) { pieces.push_back(std::min(length, keys - first)); }
    return pieces;
}

std::vector<count> random_pieces(random_source& random, count keys) {
    constexpr count usual[] = {0, 1, 7, 127, 128, 129, 256, 300};
    std::vector<count> pieces;
    for (count first = 0; first < keys; first += pieces.back()) {
        const count wanted = random.between(0, 2) == 0 ? random.between(0, 200) : usual[random.between(0, 7)];
        pieces.push_back(std::min(wanted, keys - first));
    }
    return pieces;
}

tilewise::stream_sizes stream_sizes_of(const attention_case& sizes) {
    return {.kv_heads = sizes.kv_heads, .value_dim = sizes.value_dim, .total_keys = sizes.keys};
}

void add_keys(tilewise::attention_stream& stream, const inputs& given, count first, count keys) {
    stream.add(given.k.view().slice(tilewise::axis::tokens, first, keys),
               given.v.view().slice(tilewise::axis::tokens, first, keys));
}

tilewise::attention_stream stream_over(const attention_case& sizes, const inputs& given,
                                       const tilewise::options& how, const std::vector<count>& pieces) {
    tilewise::attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
    count first = 0;
    for (const count piece : pieces) {
        add_keys(stream, given, first, piece);
        first += piece;
    }
    return stream;
}

row_results finished(tilewise::attention_stream& stream, const attention_case& sizes) {
    row_results made(sizes, all_layouts()[sizes.layouts[3]]);
    stream.finish(made.out.view(), made.lse.view(), made.row_maximum.view());
    return made;
}

mask_case streamable_masks(random_source& random, const attention_case& sizes) {
    mask_case made = random_masks(random, sizes);
    made.how.mask = {};
    made.how.blocks = {};
    made.how.bias = {};
    made.how.ranges = {};
    made.how.key_lengths = {};
    return made;
}

attention_case streamable_sizes(random_source& random) {
    attention_case sizes;
    sizes.batch = random.between(1, 2);
    sizes.kv_heads = random.between(1, 2);
    sizes.heads = sizes.kv_heads * random.between(1, 3);
    sizes.queries = random.between(1, random.between(1, 8) == 1 ? 300 : 40);
    sizes.keys = random.between(1, random.between(1, 4) == 1 ? 1000 : 400);
    sizes.key_dim = random.between(1, 40);
    sizes.value_dim = random.between(1, 40);
    sizes.seed = random.bits();
    for (auto& type : sizes.types) { type = float_types[random.bits() % float_types.size()]; }
    for (std::size_t n = 0; n < 3; ++n) { sizes.layouts[n] = random.bits() % all_layouts().size(); }
    sizes.layouts[3] = random.bits() % output_layouts;
    return sizes;
}

}  // namespace tilewise_tests

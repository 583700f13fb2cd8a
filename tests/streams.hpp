// Attention by attention_stream, with keys and values cut into pieces in some way, against one call.

#ifndef TILEWISE_TESTS_STREAMS_HPP
#define TILEWISE_TESTS_STREAMS_HPP

#include <cstdint>
#include <string>
#include <tilewise/stream.hpp>
#include <vector>

#include "cases.hpp"
#include "mask_cases.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

/// What a stream can give.
struct row_results {
    owned_tensor out;
    owned_tensor lse;
    owned_tensor row_maximum;

    explicit row_results(const attention_case& sizes, const layout& where = dense());
};

/// Empty if they have the same bits; else the first difference, in words.
std::string first_difference(const row_results& got, const row_results& want);

/// One call.
row_results at_once(const attention_case& sizes, const inputs& given, tilewise::options how);

/// Lengths of pieces: all of one length but for the last, or random ones, some of them 0.
std::vector<std::int64_t> equal_pieces(std::int64_t keys, std::int64_t length);
std::vector<std::int64_t> random_pieces(random_source& random, std::int64_t keys);

/// What a stream is told of these keys.
tilewise::stream_sizes stream_sizes_of(const attention_case& sizes);

/// The stream, with keys 0 .. the sum of `pieces` - 1 added.
tilewise::attention_stream stream_over(const attention_case& sizes, const inputs& given,
                                       const tilewise::options& how, const std::vector<std::int64_t>& pieces);
/// Adds keys first .. first + count - 1.
void add_keys(tilewise::attention_stream& stream, const inputs& given, std::int64_t first,
              std::int64_t count);
row_results finished(tilewise::attention_stream& stream, const attention_case& sizes);

/// Random masks and modifiers, without what a stream refuses.
mask_case streamable_masks(random_source& random, const attention_case& sizes);

/// Sizes for them, with any storage types and layouts.
attention_case streamable_sizes(random_source& random);

}  // namespace tilewise_tests

#endif

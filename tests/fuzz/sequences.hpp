// Sequences of calls on objects that remember: streams and caches.

#ifndef TILEWISE_TESTS_FUZZ_SEQUENCES_HPP
#define TILEWISE_TESTS_FUZZ_SEQUENCES_HPP

#include "byte_source.hpp"

namespace tilewise_tests {

/// A stream whose keys come in pieces, on changing instruction sets, saved and restored on the way, has the
/// bits of the reference. Wrong pieces, early ends and damaged states are refused and change nothing.
void check_stream(byte_source& bytes);

/// A state that was not saved so is refused, or the stream goes on from it without harm to anything else.
void check_states(byte_source& bytes);

/// A cache against a model that keeps all tokens in storage of its own.
void check_cache(byte_source& bytes);

/// Merging and rotary embeddings of any views: what is refused writes nothing, what is not writes only
/// results.
void check_other_calls(byte_source& bytes);

}  // namespace tilewise_tests

#endif

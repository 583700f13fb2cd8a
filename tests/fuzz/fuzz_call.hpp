// A whole call of attention, decoded from the bytes of a fuzzer: shapes, layouts, types, numbers, options and
// results, with the memory of all of them.

#ifndef TILEWISE_TESTS_FUZZ_FUZZ_CALL_HPP
#define TILEWISE_TESTS_FUZZ_FUZZ_CALL_HPP

#include <cstdint>
#include <span>
#include <tilewise/attention.hpp>

#include "byte_source.hpp"
#include "call_kind.hpp"
#include "fuzz_memory.hpp"

namespace tilewise_tests {

struct fuzz_call {
    call_kind kind;
    std::int64_t sequences = 1;
    std::int64_t longest_queries = 0;  ///< of a sequence
    std::int64_t longest_keys = 0;
    bool is_packed = false;
    bool is_paged = false;

    tilewise::const_tensor q;
    tilewise::const_tensor k;
    tilewise::const_tensor v;
    tilewise::tensor out;
    tilewise::options how;
    std::uint8_t score_change = 0;  ///< what how.score_function does

    fuzz_memory memory;

    /// how.score_function points to the object.
    explicit fuzz_call(byte_source& bytes);
    fuzz_call(const fuzz_call&) = delete;
    fuzz_call& operator=(const fuzz_call&) = delete;
    ~fuzz_call() = default;

    /// Whether it asks for what there is not in f64, or contradicts itself there.
    [[nodiscard]] bool must_be_refused() const;
};

/// Memory of `count` numbers of 64 bits, for spans of options.
std::span<std::int64_t> make_numbers(fuzz_memory& memory, std::int64_t count);

// The options, one function for each kind.
void choose_packing(byte_source& bytes, fuzz_call& call);
void choose_pages(byte_source& bytes, fuzz_call& call, std::int64_t table_pages);
void choose_positions(byte_source& bytes, fuzz_call& call);
void choose_intervals(byte_source& bytes, fuzz_call& call);
void choose_tensor_masks(byte_source& bytes, fuzz_call& call);
void choose_modifiers(byte_source& bytes, fuzz_call& call);
void choose_results(byte_source& bytes, fuzz_call& call);
void choose_for_f64(byte_source& bytes, fuzz_call& call);

}  // namespace tilewise_tests

#endif

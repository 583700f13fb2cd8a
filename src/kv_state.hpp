// What a kv_cache holds, and which sequence holds which pages. kv_cache.cpp says what is asked of it.

#ifndef TILEWISE_SRC_KV_STATE_HPP
#define TILEWISE_SRC_KV_STATE_HPP

#include <cstdint>
#include <span>

#include <tilewise/kv_cache.hpp>

#include "heap_array.hpp"
#include "kv_pages.hpp"

namespace tilewise {

/// A sequence: `held` pages in its row of the table, the first of which begins at position `first`.
struct kv_sequence {
    bool in_use = false;
    std::int64_t first = 0;
    std::int64_t length = 0;  ///< position of the next token
    std::int64_t held = 0;
};

struct kv_cache::state {
    kv_cache_options how;
    kv_pages k;
    kv_pages v;
    std::int64_t table_pages = 0;  ///< of one sequence
    heap_array<std::int32_t> table;
    heap_array<kv_sequence> sequences;
    heap_array<std::int32_t> owners;  ///< of each page
    heap_array<std::int32_t> free;    ///< pages that nobody holds: the first free_count
    std::int64_t free_count = 0;
    // For attention(): of the sequences of a call.
    heap_array<std::int32_t> call_table;
    heap_array<std::int64_t> call_lengths;
    heap_array<std::int64_t> call_positions;

    [[nodiscard]] bool make(const kv_cache_options& given);
    std::int32_t* pages_of(int sequence) { return table.data() + sequence * table_pages; }
    [[nodiscard]] bool find(int number, kv_sequence& of) const;
    [[nodiscard]] bool find(int number, std::int64_t tokens, kv_sequence& of) const;
    void release(std::int32_t page);
    std::int32_t take();
    [[nodiscard]] std::int64_t pages_for(std::int64_t tokens) const;
    [[nodiscard]] std::int64_t droppable(const kv_sequence& of) const;
    void drop(int number, std::int64_t count);
    [[nodiscard]] bool shares_last(int number) const;
    void own_last(int number);
    [[nodiscard]] bool take_sequence(int& number);
    [[nodiscard]] bool check_append(const const_tensor& keys, const const_tensor& values) const;
    [[nodiscard]] bool make_room(int number, std::int64_t added);
    [[nodiscard]] bool complete_call(std::span<const int> numbers, options& call);
};

}  // namespace tilewise

#endif

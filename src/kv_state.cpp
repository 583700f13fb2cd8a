#include "kv_state.hpp"

#include <algorithm>
#include <string_view>

#include "views.hpp"

namespace tilewise {

namespace {

bool require_positive(std::string_view name, std::int64_t value) {
    if (value < 1) { return refuse(name, ": ", value, " given, it must be at least 1"); }
    return true;
}

/// Checks options, and sets max_tokens.
bool complete(kv_cache_options& how) {
    if (!require_positive("kv_heads", how.kv_heads) || !require_positive("head_dim", how.head_dim) ||
        !require_positive("value_dim", how.value_dim) || !require_positive("page_tokens", how.page_tokens) ||
        !require_positive("pages", how.pages) || !require_positive("max_sequences", how.max_sequences)) {
        return false;
    }
    if (how.pages > std::int64_t{1} << 31U || how.page_tokens > std::int64_t{1} << 40U ||
        how.max_sequences > std::int64_t{1} << 31U) {
        return refuse("pages, page_tokens, max_sequences: ", how.pages, ", ", how.page_tokens, ", ",
                      how.max_sequences, " given, they must be at most 2^31, 2^40, 2^31");
    }
    if (how.max_tokens < 0) {
        return refuse("max_tokens: ", how.max_tokens, " given, it must be at least 0");
    }
    if (how.window.value_or(0) < 0) {
        return refuse("window: ", *how.window, " given, it must be at least 0");
    }
    std::int64_t all = 0;
    if (__builtin_mul_overflow(how.pages, how.page_tokens, &all)) { return lack_memory(); }
    how.max_tokens = how.max_tokens == 0 ? all : std::min(how.max_tokens, all);
    return true;
}

}  // namespace

bool kv_cache::state::make(const kv_cache_options& given) {
    how = given;
    if (!complete(how) ||
        !k.make("k_type", how.k_type, how.pages, how.kv_heads, how.page_tokens, how.head_dim) ||
        !v.make("v_type", how.v_type, how.pages, how.kv_heads, how.page_tokens, how.value_dim)) {
        return false;
    }
    table_pages = pages_for(how.max_tokens);
    if (!table.allocate({table_pages, how.max_sequences}) || !sequences.allocate({how.max_sequences}) ||
        !owners.allocate({how.pages}) || !free.allocate({how.pages}) || !call_table.allocate(table.size()) ||
        !call_lengths.allocate(sequences.size()) || !call_positions.allocate(sequences.size())) {
        return false;
    }
    for (std::int64_t page = how.pages; page-- > 0;) {
        free[static_cast<std::size_t>(free_count++)] = static_cast<std::int32_t>(page);
    }
    return true;
}

bool kv_cache::state::find(int number, kv_sequence& of) const {
    if (number < 0 || number >= how.max_sequences || !sequences[static_cast<std::size_t>(number)].in_use) {
        return refuse("sequence: ", number, " given, there is no such sequence");
    }
    of = sequences[static_cast<std::size_t>(number)];
    return true;
}

/// A sequence that has been as long as `tokens`.
bool kv_cache::state::find(int number, std::int64_t tokens, kv_sequence& of) const {
    if (!find(number, of)) { return false; }
    if (tokens < of.first || tokens > of.length) {
        return refuse("tokens: ", tokens, " given, sequence ", number, " holds positions ", of.first, " to ",
                      of.length);
    }
    return true;
}

std::int64_t kv_cache::state::pages_for(std::int64_t tokens) const {
    return tokens / how.page_tokens + (tokens % how.page_tokens != 0 ? 1 : 0);
}

void kv_cache::state::release(std::int32_t page) {
    if (--owners[static_cast<std::size_t>(page)] == 0) {
        free[static_cast<std::size_t>(free_count++)] = page;
    }
}

std::int32_t kv_cache::state::take() {
    const std::int32_t page = free[static_cast<std::size_t>(--free_count)];
    owners[static_cast<std::size_t>(page)] = 1;
    return page;
}

/// How many pages no query from the sequence's end on can see.
std::int64_t kv_cache::state::droppable(const kv_sequence& of) const {
    if (!how.window.has_value() || of.length - of.first <= *how.window) { return 0; }
    return std::min((of.length - *how.window - of.first) / how.page_tokens, of.held);
}

void kv_cache::state::drop(int number, std::int64_t count) {
    kv_sequence& of = sequences[static_cast<std::size_t>(number)];
    std::int32_t* const pages = pages_of(number);
    for (std::int64_t n = 0; n < count; ++n) { release(pages[n]); }
    std::copy(pages + count, pages + of.held, pages);
    of.held -= count;
    of.first += count * how.page_tokens;
}

/// Whether the next token goes to a page that another sequence holds as well.
bool kv_cache::state::shares_last(int number) const {
    const kv_sequence& of = sequences[static_cast<std::size_t>(number)];
    if ((of.length - of.first) % how.page_tokens == 0 || of.held == 0) { return false; }
    return owners[static_cast<std::size_t>(
               table[static_cast<std::size_t>(number * table_pages + of.held - 1)])] > 1;
}

void kv_cache::state::own_last(int number) {
    if (!shares_last(number)) { return; }
    const kv_sequence& of = sequences[static_cast<std::size_t>(number)];
    std::int32_t& page = pages_of(number)[of.held - 1];
    const std::int32_t own = take();
    const std::int64_t tokens = (of.length - of.first) % how.page_tokens;
    k.copy(page, own, tokens);
    v.copy(page, own, tokens);
    release(page);
    page = own;
}

bool kv_cache::state::take_sequence(int& number) {
    for (std::size_t n = 0; n < sequences.size(); ++n) {
        if (sequences[n].in_use) { continue; }
        sequences[n] = {true, 0, 0, 0};
        number = static_cast<int>(n);
        return true;
    }
    return fail(status_code::cache_full, "kv_cache: all of its ", how.max_sequences, " sequences are in use");
}

bool kv_cache::state::check_append(const const_tensor& keys, const const_tensor& values) const {
    byte_range bytes;
    return check_view("k", keys, float_types, bytes) && check_view("v", values, float_types, bytes) &&
           require_extent("k", keys, axis::batch, 1, "one sequence") &&
           require_extent("v", values, axis::batch, 1, "one sequence") &&
           require_extent("k", keys, axis::heads, how.kv_heads, "the cache") &&
           require_extent("v", values, axis::heads, how.kv_heads, "the cache") &&
           require_extent("k", keys, axis::head_dim, how.head_dim, "the cache") &&
           require_extent("v", values, axis::head_dim, how.value_dim, "the cache") &&
           require_extent("v", values, axis::tokens, keys.tokens(), "k");
}

/// Drops what no later query can see, and takes the pages that so many more tokens need.
bool kv_cache::state::make_room(int number, std::int64_t added) {
    kv_sequence& of = sequences[static_cast<std::size_t>(number)];
    const std::int64_t dropped = droppable(of);
    const std::int64_t first = of.first + dropped * how.page_tokens;
    const std::int64_t kept = of.length - first;
    if (added > how.max_tokens - kept) {
        return fail(status_code::cache_full, "kv_cache: sequence ", number, " holds ", kept, " tokens, ",
                    added, " more would exceed the ", how.max_tokens, " that it may hold");
    }
    const std::int64_t tokens = kept + added;
    std::int64_t available = free_count;
    for (std::int64_t n = 0; n < dropped; ++n) {
        available += owners[static_cast<std::size_t>(pages_of(number)[n])] == 1 ? 1 : 0;
    }
    const std::int64_t held = pages_for(tokens);
    const std::int64_t wanted = held - (of.held - dropped) + (shares_last(number) ? 1 : 0);
    if (wanted > available) {
        return fail(status_code::cache_full, "kv_cache: ", wanted, " more pages are needed, ", available,
                    " are free");
    }
    drop(number, dropped);
    own_last(number);
    for (; of.held < held; ++of.held) { pages_of(number)[of.held] = take(); }
    return true;
}

/// Options of a call with these sequences, whose pages and lengths are in the state.
bool kv_cache::state::complete_call(std::span<const int> numbers, options& call) {
    if (numbers.size() > sequences.size()) {
        return refuse("sequences: ", numbers.size(), " given, the cache has at most ", sequences.size());
    }
    if (!call.key_lengths.empty() || call.key_position != 0 || !call.key_positions.empty() ||
        !call.key_starts.empty() || call.block_table.data != nullptr) {
        return refuse(
            "how: key_lengths, key_position, key_positions, key_starts or block_table given, the cache sets "
            "them");
    }
    for (std::size_t n = 0; n < numbers.size(); ++n) {
        kv_sequence of;
        if (!find(numbers[n], of)) { return false; }
        std::copy_n(pages_of(numbers[n]), of.held,
                    call_table.data() + static_cast<std::int64_t>(n) * table_pages);
        call_lengths[n] = of.length - of.first;
        call_positions[n] = of.first;
    }
    call.key_lengths = {call_lengths.data(), numbers.size()};
    call.key_positions = {call_positions.data(), numbers.size()};
    call.block_table = {call_table.data(),
                        element_type::i32,
                        {static_cast<std::int64_t>(numbers.size()), 1, 1, table_pages},
                        {table_pages, 0, 0, 1}};
    return true;
}

}  // namespace tilewise

#include <tilewise/kv_cache.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kv_pages.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

/// A sequence: `held` pages in its row of the table, the first of which begins at position `first`.
struct kv_sequence {
    bool in_use = false;
    std::int64_t first = 0;
    std::int64_t length = 0;  ///< position of the next token
    std::int64_t held = 0;
};

void require_positive(std::string_view name, std::int64_t value) {
    if (value < 1) { refuse(name, ": ", value, " given, it must be at least 1"); }
}

kv_cache_options checked(kv_cache_options how) {
    require_positive("kv_heads", how.kv_heads);
    require_positive("head_dim", how.head_dim);
    require_positive("value_dim", how.value_dim);
    require_positive("page_tokens", how.page_tokens);
    require_positive("pages", how.pages);
    require_positive("max_sequences", how.max_sequences);
    if (how.pages > std::int64_t{1} << 31U || how.page_tokens > std::int64_t{1} << 40U ||
        how.max_sequences > std::int64_t{1} << 31U) {
        refuse("pages, page_tokens, max_sequences: ", how.pages, ", ", how.page_tokens, ", ",
               how.max_sequences, " given, they must be at most 2^31, 2^40, 2^31");
    }
    if (how.max_tokens < 0) { refuse("max_tokens: ", how.max_tokens, " given, it must be at least 0"); }
    if (how.window.value_or(0) < 0) { refuse("window: ", *how.window, " given, it must be at least 0"); }
    const std::int64_t all = how.pages * how.page_tokens;
    how.max_tokens = how.max_tokens == 0 ? all : std::min(how.max_tokens, all);
    return how;
}

}  // namespace

struct kv_cache::state {
    kv_cache_options how;
    kv_pages k;
    kv_pages v;
    std::int64_t table_pages;  ///< of one sequence
    std::vector<std::int32_t> table;
    std::vector<kv_sequence> sequences;
    std::vector<std::int32_t> owners;  ///< of each page
    std::vector<std::int32_t> free;
    // For attention(): of the sequences of a call.
    std::vector<std::int32_t> call_table;
    std::vector<std::int64_t> call_lengths;
    std::vector<std::int64_t> call_positions;

    explicit state(const kv_cache_options& given);
    std::int32_t* pages_of(int sequence) { return table.data() + sequence * table_pages; }
    [[nodiscard]] const kv_sequence& checked_sequence(int number) const;
    void release(std::int32_t page);
    std::int32_t take();
    [[nodiscard]] std::int64_t droppable(const kv_sequence& of) const;
    void drop(int number, std::int64_t count);
    [[nodiscard]] bool shares_last(int number) const;
    void own_last(int number);
    int new_sequence();
};

kv_cache::state::state(const kv_cache_options& given)
    : how(checked(given)),
      k("k_type", how.k_type, how.pages, how.kv_heads, how.page_tokens, how.head_dim),
      v("v_type", how.v_type, how.pages, how.kv_heads, how.page_tokens, how.value_dim),
      table_pages((how.max_tokens + how.page_tokens - 1) / how.page_tokens),
      table(static_cast<std::size_t>(table_pages * how.max_sequences)),
      sequences(static_cast<std::size_t>(how.max_sequences)),
      owners(static_cast<std::size_t>(how.pages)),
      call_table(table.size()),
      call_lengths(sequences.size()),
      call_positions(sequences.size()) {
    free.reserve(owners.size());
    for (std::int64_t page = how.pages; page-- > 0;) { free.push_back(static_cast<std::int32_t>(page)); }
}

const kv_sequence& kv_cache::state::checked_sequence(int number) const {
    if (number < 0 || number >= how.max_sequences || !sequences[static_cast<std::size_t>(number)].in_use) {
        refuse("sequence: ", number, " given, there is no such sequence");
    }
    return sequences[static_cast<std::size_t>(number)];
}

void kv_cache::state::release(std::int32_t page) {
    if (--owners[static_cast<std::size_t>(page)] == 0) { free.push_back(page); }
}

std::int32_t kv_cache::state::take() {
    const std::int32_t page = free.back();
    free.pop_back();
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

int kv_cache::state::new_sequence() {
    for (std::size_t n = 0; n < sequences.size(); ++n) {
        if (sequences[n].in_use) { continue; }
        sequences[n] = {true, 0, 0, 0};
        return static_cast<int>(n);
    }
    throw std::length_error("tilewise: kv_cache: all of its " + std::to_string(how.max_sequences) +
                            " sequences are in use");
}

kv_cache::kv_cache(const kv_cache_options& how) : state_(std::make_unique<state>(how)) {}
kv_cache::~kv_cache() = default;
kv_cache::kv_cache(kv_cache&& other) noexcept = default;
kv_cache& kv_cache::operator=(kv_cache&& other) noexcept = default;

int kv_cache::add() { return state_->new_sequence(); }

int kv_cache::fork(int sequence, std::int64_t tokens) {
    state& s = *state_;
    const kv_sequence of = s.checked_sequence(sequence);
    if (tokens < of.first || tokens > of.length) {
        refuse("tokens: ", tokens, " given, sequence ", sequence, " holds positions ", of.first, " to ",
               of.length);
    }
    const int number = s.new_sequence();
    const std::int64_t held = (tokens - of.first + s.how.page_tokens - 1) / s.how.page_tokens;
    std::copy_n(s.pages_of(sequence), held, s.pages_of(number));
    for (std::int64_t n = 0; n < held; ++n) { ++s.owners[static_cast<std::size_t>(s.pages_of(number)[n])]; }
    s.sequences[static_cast<std::size_t>(number)] = {true, of.first, tokens, held};
    return number;
}

void kv_cache::remove(int sequence) {
    const std::int64_t held = state_->checked_sequence(sequence).held;
    state_->drop(sequence, held);
    state_->sequences[static_cast<std::size_t>(sequence)].in_use = false;
}

void kv_cache::truncate(int sequence, std::int64_t tokens) {
    state& s = *state_;
    const kv_sequence& of = s.checked_sequence(sequence);
    if (tokens < of.first || tokens > of.length) {
        refuse("tokens: ", tokens, " given, sequence ", sequence, " holds positions ", of.first, " to ",
               of.length);
    }
    const std::int64_t held = (tokens - of.first + s.how.page_tokens - 1) / s.how.page_tokens;
    for (std::int64_t n = held; n < of.held; ++n) { s.release(s.pages_of(sequence)[n]); }
    s.sequences[static_cast<std::size_t>(sequence)] = {true, of.first, tokens, held};
}

void kv_cache::append(int sequence, const const_tensor& k, const const_tensor& v) {
    state& s = *state_;
    const kv_sequence& of = s.checked_sequence(sequence);
    check_view("k", k, float_types);
    check_view("v", v, float_types);
    require_extent("k", k, axis::batch, 1, "one sequence");
    require_extent("v", v, axis::batch, 1, "one sequence");
    require_extent("k", k, axis::heads, s.how.kv_heads, "the cache");
    require_extent("v", v, axis::heads, s.how.kv_heads, "the cache");
    require_extent("k", k, axis::head_dim, s.how.head_dim, "the cache");
    require_extent("v", v, axis::head_dim, s.how.value_dim, "the cache");
    require_extent("v", v, axis::tokens, k.tokens(), "k");
    if (k.tokens() == 0) { return; }
    const std::int64_t dropped = s.droppable(of);
    const std::int64_t first = of.first + dropped * s.how.page_tokens;
    const std::int64_t tokens = of.length + k.tokens() - first;
    if (tokens > s.how.max_tokens) {
        throw std::length_error("tilewise: kv_cache: sequence " + std::to_string(sequence) + " would hold " +
                                std::to_string(tokens) + " tokens, it may hold " +
                                std::to_string(s.how.max_tokens));
    }
    std::int64_t freed = 0;
    for (std::int64_t n = 0; n < dropped; ++n) {
        freed += s.owners[static_cast<std::size_t>(s.pages_of(sequence)[n])] == 1 ? 1 : 0;
    }
    const std::int64_t held = (tokens + s.how.page_tokens - 1) / s.how.page_tokens;
    const std::int64_t wanted = held - (of.held - dropped) + (s.shares_last(sequence) ? 1 : 0);
    if (wanted > static_cast<std::int64_t>(s.free.size()) + freed) {
        throw std::length_error("tilewise: kv_cache: " + std::to_string(wanted) + " more pages are needed, " +
                                std::to_string(static_cast<std::int64_t>(s.free.size()) + freed) +
                                " are free");
    }
    s.drop(sequence, dropped);
    s.own_last(sequence);
    kv_sequence& to = s.sequences[static_cast<std::size_t>(sequence)];
    for (; to.held < held; ++to.held) { s.pages_of(sequence)[to.held] = s.take(); }
    for (std::int64_t t = 0; t < k.tokens(); ++t, ++to.length) {
        const std::int64_t place = to.length - to.first;
        const std::int32_t page = s.pages_of(sequence)[place / s.how.page_tokens];
        s.k.store(page, place % s.how.page_tokens, k, t);
        s.v.store(page, place % s.how.page_tokens, v, t);
    }
}

std::int64_t kv_cache::length(int sequence) const { return state_->checked_sequence(sequence).length; }
std::int64_t kv_cache::first_position(int sequence) const { return state_->checked_sequence(sequence).first; }
std::int64_t kv_cache::free_pages() const { return static_cast<std::int64_t>(state_->free.size()); }

std::size_t kv_cache::memory_bytes() const {
    const state& s = *state_;
    return sizeof(state) + s.k.memory_bytes() + s.v.memory_bytes() +
           (s.table.capacity() + s.call_table.capacity() + s.owners.capacity() + s.free.capacity()) *
               sizeof(std::int32_t) +
           (s.call_lengths.capacity() + s.call_positions.capacity()) * sizeof(std::int64_t) +
           s.sequences.capacity() * sizeof(kv_sequence);
}

void kv_cache::attention(std::span<const int> sequences, const const_tensor& q, const tensor& out,
                         const options& how) {
    state& s = *state_;
    if (sequences.size() > s.sequences.size()) {
        refuse("sequences: ", sequences.size(), " given, the cache has at most ", s.sequences.size());
    }
    if (!how.key_lengths.empty() || how.key_position != 0 || !how.key_positions.empty() ||
        !how.key_starts.empty() || how.block_table.data != nullptr) {
        refuse(
            "how: key_lengths, key_position, key_positions, key_starts or block_table given, the cache sets "
            "them");
    }
    for (std::size_t n = 0; n < sequences.size(); ++n) {
        const kv_sequence& of = s.checked_sequence(sequences[n]);
        std::copy_n(s.pages_of(sequences[n]), of.held,
                    s.call_table.data() + static_cast<std::int64_t>(n) * s.table_pages);
        s.call_lengths[n] = of.length - of.first;
        s.call_positions[n] = of.first;
    }
    options full = how;
    full.key_lengths = std::span(s.call_lengths).first(sequences.size());
    full.key_positions = std::span(s.call_positions).first(sequences.size());
    full.block_table = {s.call_table.data(),
                        element_type::i32,
                        {static_cast<std::int64_t>(sequences.size()), 1, 1, s.table_pages},
                        {s.table_pages, 0, 0, 1}};
    tilewise::attention(q, s.k.view(), s.v.view(), out, full);
}

}  // namespace tilewise

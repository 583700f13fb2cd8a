// The cache's public functions: each is one step on its state, or throws what that returned.

#include <tilewise/kv_cache.hpp>

#include <algorithm>
#include <new>
#include <utility>

#include "errors.hpp"
#include "kv_state.hpp"

namespace tilewise {

kv_cache::kv_cache(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
kv_cache::~kv_cache() = default;
kv_cache::kv_cache(kv_cache&& other) noexcept = default;
kv_cache& kv_cache::operator=(kv_cache&& other) noexcept = default;

status kv_cache::try_make(const kv_cache_options& how, std::optional<kv_cache>& cache) noexcept {
    std::unique_ptr<state> made(new (std::nothrow) state);
    if (made == nullptr) { return status_of(lack_memory()); }
    if (!made->make(how)) { return status_of(false); }
    cache = kv_cache(std::move(made));
    return {};
}

status kv_cache::try_add(int& sequence) noexcept { return status_of(state_->take_sequence(sequence)); }

status kv_cache::try_fork(int sequence, std::int64_t tokens, int& forked) noexcept {
    state& s = *state_;
    kv_sequence of;
    int number = 0;
    if (!s.find(sequence, tokens, of) || !s.take_sequence(number)) { return status_of(false); }
    const std::int64_t held = s.pages_for(tokens - of.first);
    std::copy_n(s.pages_of(sequence), held, s.pages_of(number));
    for (std::int64_t n = 0; n < held; ++n) { ++s.owners[static_cast<std::size_t>(s.pages_of(number)[n])]; }
    s.sequences[static_cast<std::size_t>(number)] = {true, of.first, tokens, held};
    forked = number;
    return {};
}

status kv_cache::try_remove(int sequence) noexcept {
    kv_sequence of;
    if (!state_->find(sequence, of)) { return status_of(false); }
    state_->drop(sequence, of.held);
    state_->sequences[static_cast<std::size_t>(sequence)].in_use = false;
    return {};
}

status kv_cache::try_truncate(int sequence, std::int64_t tokens) noexcept {
    state& s = *state_;
    kv_sequence of;
    if (!s.find(sequence, tokens, of)) { return status_of(false); }
    const std::int64_t held = s.pages_for(tokens - of.first);
    for (std::int64_t n = held; n < of.held; ++n) { s.release(s.pages_of(sequence)[n]); }
    s.sequences[static_cast<std::size_t>(sequence)] = {true, of.first, tokens, held};
    return {};
}

status kv_cache::try_append(int sequence, const const_tensor& k, const const_tensor& v) noexcept {
    state& s = *state_;
    kv_sequence of;
    if (!s.find(sequence, of) || !s.check_append(k, v)) { return status_of(false); }
    if (k.tokens() == 0) { return {}; }
    if (!s.make_room(sequence, k.tokens())) { return status_of(false); }
    kv_sequence& to = s.sequences[static_cast<std::size_t>(sequence)];
    for (std::int64_t t = 0; t < k.tokens(); ++t, ++to.length) {
        const std::int64_t place = to.length - to.first;
        const std::int32_t page = s.pages_of(sequence)[place / s.how.page_tokens];
        s.k.store(page, place % s.how.page_tokens, k, t);
        s.v.store(page, place % s.how.page_tokens, v, t);
    }
    return {};
}

status kv_cache::try_length(int sequence, std::int64_t& tokens) const noexcept {
    kv_sequence of;
    if (!state_->find(sequence, of)) { return status_of(false); }
    tokens = of.length;
    return {};
}

status kv_cache::try_first_position(int sequence, std::int64_t& position) const noexcept {
    kv_sequence of;
    if (!state_->find(sequence, of)) { return status_of(false); }
    position = of.first;
    return {};
}

std::int64_t kv_cache::free_pages() const { return state_->free_count; }

std::size_t kv_cache::memory_bytes() const {
    const state& s = *state_;
    return sizeof(state) + s.k.memory_bytes() + s.v.memory_bytes() + s.table.bytes() + s.call_table.bytes() +
           s.owners.bytes() + s.free.bytes() + s.call_lengths.bytes() + s.call_positions.bytes() +
           s.sequences.bytes();
}

status kv_cache::try_attention(std::span<const int> sequences, const const_tensor& q, const tensor& out,
                               const options& how) noexcept {
    options call = how;
    if (!state_->complete_call(sequences, call)) { return status_of(false); }
    return tilewise::try_attention(q, state_->k.view(), state_->v.view(), out, call);
}

status kv_cache::try_plan_attention(std::span<const int> sequences, const const_tensor& q, const tensor& out,
                                    const options& how, plan& result) noexcept {
    options call = how;
    if (!state_->complete_call(sequences, call)) { return status_of(false); }
    return tilewise::try_plan_attention(q, state_->k.view(), state_->v.view(), out, call, result);
}

// What throws.

kv_cache::kv_cache(const kv_cache_options& how) {
    std::optional<kv_cache> made;
    raise_unless(try_make(how, made));
    state_ = std::move(made->state_);
}

int kv_cache::add() {
    int sequence = 0;
    raise_unless(try_add(sequence));
    return sequence;
}

int kv_cache::fork(int sequence, std::int64_t tokens) {
    int forked = 0;
    raise_unless(try_fork(sequence, tokens, forked));
    return forked;
}

void kv_cache::remove(int sequence) { raise_unless(try_remove(sequence)); }

void kv_cache::truncate(int sequence, std::int64_t tokens) { raise_unless(try_truncate(sequence, tokens)); }

void kv_cache::append(int sequence, const const_tensor& k, const const_tensor& v) {
    raise_unless(try_append(sequence, k, v));
}

std::int64_t kv_cache::length(int sequence) const {
    std::int64_t tokens = 0;
    raise_unless(try_length(sequence, tokens));
    return tokens;
}

std::int64_t kv_cache::first_position(int sequence) const {
    std::int64_t position = 0;
    raise_unless(try_first_position(sequence, position));
    return position;
}

void kv_cache::attention(std::span<const int> sequences, const const_tensor& q, const tensor& out,
                         const options& how) {
    raise_unless(try_attention(sequences, q, out, how));
}

plan kv_cache::plan_attention(std::span<const int> sequences, const const_tensor& q, const tensor& out,
                              const options& how) {
    plan result;
    raise_unless(try_plan_attention(sequences, q, out, how, result));
    return result;
}

}  // namespace tilewise

// attention_stream: cuts what comes into chunks at absolute positions, and keeps what is left over.

#include <tilewise/stream.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "contract.hpp"
#include "float_environment.hpp"
#include "reference_elements.hpp"
#include "stream_state.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

using detail::stream_state;

bool require_live(const std::unique_ptr<stream_state>& state, const char* function) {
    if (state == nullptr || state->finished) {
        return fail(status_code::stream_finished, "attention_stream: ", function,
                    " called, the stream has been ", state == nullptr ? "moved from" : "finished");
    }
    return true;
}

/// Converts one row, as the kernels would.
void copy_row(const const_tensor& x, std::int64_t batch, std::int64_t head, std::int64_t token, float* to) {
    const std::int64_t first = batch * x.strides[0] + head * x.strides[1] + token * x.strides[2];
    if (x.type == element_type::f32 && x.strides[3] == 1) {
        const auto count = static_cast<std::size_t>(x.head_dim());
        if (count > 0) { std::memcpy(to, static_cast<const float*>(x.data) + first, count * sizeof(float)); }
        return;
    }
    for (std::int64_t i = 0; i < x.head_dim(); ++i) {
        to[i] = reference::read_element(x.data, x.type, first + i * x.strides[3]);
    }
    if (x.scales == nullptr) { return; }
    const auto& s = x.scale_strides;
    const float* const scales = x.scales + batch * s[0] + head * s[1] + token * s[2];
    for (std::int64_t i = 0; i < x.head_dim(); ++i) { to[i] *= scales[i * s[3]]; }
}

/// Copies the rows of a piece behind those that are there, of each head.
void copy_rows(const const_tensor& from, std::int64_t behind, float* chunks) {
    for (std::int64_t b = 0; b < from.batch(); ++b) {
        for (std::int64_t h = 0; h < from.heads(); ++h) {
            float* const chunk = chunks + (b * from.heads() + h) * contract::chunk_keys * from.head_dim();
            for (std::int64_t t = 0; t < from.tokens(); ++t) {
                copy_row(from, b, h, t, chunk + (behind + t) * from.head_dim());
            }
        }
    }
}

/// Takes keys and values to those that are carried.
void carry(stream_state& s, const const_tensor& k, const const_tensor& v) {
    copy_rows(k, s.carried(), s.carried_k.data());
    copy_rows(v, s.carried(), s.carried_v.data());
    s.keys += k.tokens();
}

/// How a piece of `count` keys is cut: what makes the carried chunk whole, whole chunks, and what is carried
/// from there on.
struct piece_cut {
    std::int64_t first;
    std::int64_t whole;
    std::int64_t rest;
};
piece_cut cut_piece(const stream_state& s, std::int64_t count) {
    constexpr std::int64_t chunk = contract::chunk_keys;
    const std::int64_t room = s.carried() == 0 ? 0 : chunk - s.position() % chunk;
    if (count < room) { return {0, 0, count}; }
    const std::int64_t end = s.position() + count;
    const std::int64_t whole = std::max<std::int64_t>(end / chunk * chunk - s.position() - room, 0);
    return {room, whole, count - room - whole};
}

const_tensor tokens_of(const const_tensor& x, std::int64_t first, std::int64_t count) {
    return x.slice(axis::tokens, first, count);
}

/// Attends to the chunks that a piece completes and to those that it holds. Nothing has changed if it fails.
bool advance_over(stream_state& s, const const_tensor& k, const const_tensor& v, const piece_cut& cut) {
    detail::planned_piece carried;
    detail::planned_piece whole;
    scratch_array owned;
    std::byte* scratch = nullptr;
    const detail::key_piece inside{tokens_of(k, cut.first, cut.whole), tokens_of(v, cut.first, cut.whole),
                                   s.position() + cut.first};
    if (!plan_piece(s, carried_piece(s, cut.first == 0 ? 0 : s.carried() + cut.first), carried) ||
        !plan_piece(s, inside, whole) || !detail::find_scratch(s, {&carried, &whole}, owned, scratch)) {
        return false;
    }
    carry(s, tokens_of(k, 0, cut.first), tokens_of(v, 0, cut.first));
    advance_rows(s, carried, scratch);
    advance_rows(s, whole, scratch);
    s.keys += cut.whole;
    return true;
}

bool make(stream_state& s, const const_tensor& q, const stream_sizes& sizes, const options& how) {
    const float_environment standard;  // the default scale is computed
    s.q = with_sound_strides(q);
    s.how = how;
    s.total_keys = sizes.total_keys;
    const problem& p = s.sizes;
    detail::planned_piece none;
    scratch_array owned;
    std::byte* scratch = nullptr;
    if (!detail::check_stream(q, sizes, how, s.sizes) ||
        !s.rows.allocate({p.batch, p.kv_heads, s.head_rows(), s.state_floats()}) ||
        !s.carried_k.allocate({p.batch, p.kv_heads, contract::chunk_keys, p.head_dim}) ||
        !s.carried_v.allocate({p.batch, p.kv_heads, contract::chunk_keys, p.value_dim}) ||
        !plan_piece(s, carried_piece(s, 0), none) || !detail::find_scratch(s, {&none}, owned, scratch)) {
        return false;
    }
    detail::start_rows(s, none, scratch);
    return true;
}

}  // namespace

attention_stream::attention_stream(std::unique_ptr<stream_state> made) noexcept : state_(std::move(made)) {}
attention_stream::~attention_stream() = default;
attention_stream::attention_stream(attention_stream&& other) noexcept = default;
attention_stream& attention_stream::operator=(attention_stream&& other) noexcept = default;

status attention_stream::try_make(const const_tensor& q, const stream_sizes& sizes, const options& how,
                                  std::optional<attention_stream>& stream) noexcept {
    std::unique_ptr<stream_state> made(new (std::nothrow) stream_state);
    if (made == nullptr) { return status_of(lack_memory()); }
    if (!make(*made, q, sizes, how)) { return status_of(false); }
    stream = attention_stream(std::move(made));
    return {};
}

status attention_stream::try_add(const const_tensor& k, const const_tensor& v) noexcept {
    if (!require_live(state_, "add")) { return status_of(false); }
    stream_state& s = *state_;
    const float_environment standard;
    if (!detail::check_piece(s, k, v)) { return status_of(false); }
    const const_tensor keys = with_sound_strides(k);
    const const_tensor values = with_sound_strides(v);
    const piece_cut cut = cut_piece(s, k.tokens());
    if (cut.first + cut.whole > 0 && !advance_over(s, keys, values, cut)) { return status_of(false); }
    const std::int64_t rest = k.tokens() - cut.rest;
    carry(s, tokens_of(keys, rest, cut.rest), tokens_of(values, rest, cut.rest));
    return {};
}

status attention_stream::try_keys_added(std::int64_t& keys) const noexcept {
    if (!require_live(state_, "keys_added")) { return status_of(false); }
    keys = state_->keys;
    return {};
}

status attention_stream::try_finish(const tensor& out, const tensor& lse,
                                    const tensor& row_maximum) noexcept {
    if (!require_live(state_, "finish")) { return status_of(false); }
    stream_state& s = *state_;
    const float_environment standard;
    if (!detail::check_stream_results(s, {out, lse, row_maximum})) { return status_of(false); }
    const detail::stream_results into{with_sound_strides(out), with_sound_strides(lse),
                                      with_sound_strides(row_maximum)};
    s.sizes.out_type = out.type;
    detail::planned_piece rest;
    scratch_array owned;
    std::byte* scratch = nullptr;
    if (!plan_piece(s, carried_piece(s, s.carried()), rest) ||
        !detail::find_scratch(s, {&rest}, owned, scratch)) {
        return status_of(false);
    }
    advance_rows(s, rest, scratch);
    finish_rows(s, rest, into, scratch);
    s.finished = true;
    for (heap_array<float>* const memory : {&s.rows, &s.carried_k, &s.carried_v}) { memory->free(); }
    return {};
}

status attention_stream::try_saved_bytes(std::size_t& bytes) const noexcept {
    if (!require_live(state_, "saved_bytes")) { return status_of(false); }
    bytes = detail::saved_bytes(*state_);
    return {};
}

status attention_stream::try_save(std::span<std::byte> to) const noexcept {
    if (!require_live(state_, "save")) { return status_of(false); }
    const float_environment standard;
    return status_of(detail::save(*state_, to));
}

status attention_stream::try_restore(std::span<const std::byte> from) noexcept {
    if (!require_live(state_, "restore")) { return status_of(false); }
    const float_environment standard;
    return status_of(detail::restore(*state_, from));
}

// What throws.

attention_stream::attention_stream(const const_tensor& q, const stream_sizes& sizes, const options& how) {
    std::optional<attention_stream> made;
    raise_unless(try_make(q, sizes, how, made));
    state_ = std::move(made->state_);
}

void attention_stream::add(const const_tensor& k, const const_tensor& v) { raise_unless(try_add(k, v)); }

std::int64_t attention_stream::keys_added() const {
    std::int64_t keys = 0;
    raise_unless(try_keys_added(keys));
    return keys;
}

void attention_stream::finish(const tensor& out, const tensor& lse, const tensor& row_maximum) {
    raise_unless(try_finish(out, lse, row_maximum));
}

std::size_t attention_stream::saved_bytes() const {
    std::size_t bytes = 0;
    raise_unless(try_saved_bytes(bytes));
    return bytes;
}

void attention_stream::save(std::span<std::byte> to) const { raise_unless(try_save(to)); }

std::vector<std::byte> attention_stream::save() const {
    if (!require_live(state_, "save")) { raise(status_of(false)); }
    std::vector<std::byte> bytes(detail::saved_bytes(*state_));
    save(bytes);
    return bytes;
}

void attention_stream::restore(std::span<const std::byte> from) { raise_unless(try_restore(from)); }

}  // namespace tilewise

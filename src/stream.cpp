// attention_stream: cuts what comes into chunks at absolute positions, and keeps what is left over.

#include <tilewise/stream.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "contract.hpp"
#include "float_environment.hpp"
#include "reference_elements.hpp"
#include "stream_state.hpp"

namespace tilewise {

namespace {

using detail::stream_state;

stream_state& live(const std::unique_ptr<stream_state>& state, const char* function) {
    if (state == nullptr || state->finished) {
        throw std::logic_error(std::string("tilewise: attention_stream: ") + function +
                               " called, the stream has been " +
                               (state == nullptr ? "moved from" : "finished"));
    }
    return *state;
}

/// The product, or bad_alloc if no memory has so many floats.
std::size_t count_floats(std::initializer_list<std::int64_t> factors) {
    if (std::find(factors.begin(), factors.end(), 0) != factors.end()) { return 0; }
    std::int64_t count = sizeof(float);
    for (const std::int64_t factor : factors) {
        if (__builtin_mul_overflow(count, factor, &count)) { throw std::bad_alloc(); }
    }
    return static_cast<std::size_t>(count) / sizeof(float);
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

/// Attends to the chunks that a piece completes and to those that it holds.
void advance_over(stream_state& s, const const_tensor& k, const const_tensor& v, const piece_cut& cut) {
    const detail::planned_piece carried =
        plan_piece(s, carried_piece(s, cut.first == 0 ? 0 : s.carried() + cut.first));
    const detail::planned_piece whole = plan_piece(
        s,
        {tokens_of(k, cut.first, cut.whole), tokens_of(v, cut.first, cut.whole), s.position() + cut.first});
    const detail::scratch_memory scratch = detail::allocate_scratch({&carried, &whole});
    // Nothing can fail from here on.
    carry(s, tokens_of(k, 0, cut.first), tokens_of(v, 0, cut.first));
    advance_rows(s, carried, scratch);
    advance_rows(s, whole, scratch);
    s.keys += cut.whole;
}

}  // namespace

attention_stream::attention_stream(const const_tensor& q, const stream_sizes& sizes, const options& how) {
    const float_environment standard;  // the default scale is computed
    state_ = std::make_unique<stream_state>();
    stream_state& s = *state_;
    s.q = q;
    s.how = how;
    s.sizes = detail::check_stream(q, sizes, how);
    s.total_keys = sizes.total_keys;
    const problem& p = s.sizes;
    s.rows.resize(count_floats({p.batch, p.kv_heads, s.head_rows(), s.state_floats()}));
    s.carried_k.resize(count_floats({p.batch, p.kv_heads, contract::chunk_keys, p.head_dim}));
    s.carried_v.resize(count_floats({p.batch, p.kv_heads, contract::chunk_keys, p.value_dim}));
    const detail::planned_piece none = plan_piece(s, carried_piece(s, 0));
    detail::start_rows(s, none, detail::allocate_scratch({&none}));
}

attention_stream::~attention_stream() = default;
attention_stream::attention_stream(attention_stream&& other) noexcept = default;
attention_stream& attention_stream::operator=(attention_stream&& other) noexcept = default;

void attention_stream::add(const const_tensor& k, const const_tensor& v) {
    stream_state& s = live(state_, "add");
    const float_environment standard;
    detail::check_piece(s, k, v);
    const piece_cut cut = cut_piece(s, k.tokens());
    if (cut.first + cut.whole > 0) { advance_over(s, k, v, cut); }
    carry(s, tokens_of(k, k.tokens() - cut.rest, cut.rest), tokens_of(v, k.tokens() - cut.rest, cut.rest));
}

std::int64_t attention_stream::keys_added() const { return live(state_, "keys_added").keys; }

void attention_stream::finish(const tensor& out, const tensor& lse, const tensor& row_maximum) {
    stream_state& s = live(state_, "finish");
    const float_environment standard;
    const detail::stream_results into{out, lse, row_maximum};
    detail::check_stream_results(s, into);
    s.sizes.out_type = out.type;
    const detail::planned_piece rest = plan_piece(s, carried_piece(s, s.carried()));
    const detail::scratch_memory scratch = detail::allocate_scratch({&rest});
    advance_rows(s, rest, scratch);
    finish_rows(s, rest, into, scratch);
    s.finished = true;
    for (std::vector<float>* const memory : {&s.rows, &s.carried_k, &s.carried_v}) {
        std::vector<float>().swap(*memory);
    }
}

std::size_t attention_stream::saved_bytes() const { return detail::saved_bytes(live(state_, "saved_bytes")); }

void attention_stream::save(std::span<std::byte> to) const {
    const stream_state& s = live(state_, "save");
    const float_environment standard;
    detail::save(s, to);
}

std::vector<std::byte> attention_stream::save() const {
    const stream_state& s = live(state_, "save");
    std::vector<std::byte> bytes(detail::saved_bytes(s));
    save(bytes);
    return bytes;
}

void attention_stream::restore(std::span<const std::byte> from) {
    stream_state& s = live(state_, "restore");
    const float_environment standard;
    detail::restore(s, from);
}

}  // namespace tilewise

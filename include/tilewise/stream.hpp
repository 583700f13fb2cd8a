// Attention over keys and values that come piece by piece: from a file, a network, or layers of storage that
// do not fit in memory together.

#ifndef TILEWISE_STREAM_HPP
#define TILEWISE_STREAM_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <tilewise/attention.hpp>
#include <tilewise/export.hpp>
#include <tilewise/status.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise {

namespace detail {
struct stream_state;
}

/// What an attention_stream must know of the keys and values before the first of them comes.
struct stream_sizes {
    std::int64_t kv_heads = 1;
    std::int64_t value_dim = 0;

    /// How many keys there will be. Needed where options speak of query positions (causal mask, windows,
    /// attention_chunk, documents, ALiBi, a score function) and neither options::query_position nor
    /// causal::top_left says what they are: by default the last query sees the last key. If it is given, add
    /// refuses more keys, and finish fewer.
    std::optional<std::int64_t> total_keys = std::nullopt;
};

/// The same attention as attention() computes, for queries that are there from the start, and keys and values
/// that come in pieces, of any number of tokens each.
///
/// The results have the bits of one call with all keys, however they are cut into pieces, on any instruction
/// set (which may change on the way) and number of threads. Chunks of 128 keys that are whole in a piece are
/// attended to where they lie; the tokens that are left over are copied, and wait for the rest of their
/// chunk.
///
/// Memory that a stream holds, in bytes, with heads and tokens those of q:
///
///     4 batch heads tokens (3 + value_dim)  +  512 batch kv_heads (head_dim + value_dim)
///
/// for the states of the query rows, and one chunk per key head; and a few hundred more. add and finish
/// allocate besides, and free, the scratch memory that plan_attention states for as many keys (at most twice
/// 128 more). A piece that completes no chunk needs none. With options::workspace they allocate nothing: the
/// constructor, add and finish use it, and refuse one that is too small for them.
///
/// The arithmetic is exact, also where options::arithmetic asks for the fastest.
///
/// Of the options, all that say what is computed serve, but those with tensors over all keys (mask, blocks,
/// bias, ranges), key_lengths and packed sequences (query_starts, key_starts). Results are asked for in
/// finish; those that need a second look at the keys (entropy, weights, key_weights) cannot be had.
///
/// A stream does not copy q, nor what the options point to (documents, slopes, sinks, the score function's
/// context): all that must stay valid and unchanged until the stream is finished or destroyed.
///
/// Not safe to call from several threads at once; different streams are. What is called on a stream that has
/// been finished, or moved from, throws std::logic_error; it may be destroyed and assigned to. Arguments are
/// checked before anything is changed or written: std::invalid_argument names them, and the stream is as it
/// was before. So it is after std::bad_alloc.
///
/// Members that begin with try_ do the same, and return what the others throw (status.hpp).
class attention_stream {
public:
    /// q: [batch, heads, n_queries, head_dim], f32, f16 or bf16.
    TILEWISE_API attention_stream(const const_tensor& q, const stream_sizes& sizes, const options& how = {});
    TILEWISE_API ~attention_stream();
    TILEWISE_API attention_stream(attention_stream&& other) noexcept;
    TILEWISE_API attention_stream& operator=(attention_stream&& other) noexcept;
    attention_stream(const attention_stream&) = delete;
    attention_stream& operator=(const attention_stream&) = delete;

    /// The next keys [batch, kv_heads, n, head_dim] and their values [batch, kv_heads, n, value_dim], n >= 0;
    /// of any type and strides that attention() takes, which may differ from piece to piece. They are no
    /// longer needed once add returns.
    TILEWISE_API void add(const const_tensor& k, const const_tensor& v);

    /// Keys so far.
    [[nodiscard]] TILEWISE_API std::int64_t keys_added() const;

    /// Writes the results, and frees the stream's memory.
    ///   out          [batch, heads, n_queries, value_dim], f32, f16 or bf16
    ///   lse          as options::lse; not written if its data is null
    ///   row_maximum  as extra_results::row_maximum; the same
    /// They must not overlap q or one another.
    TILEWISE_API void finish(const tensor& out, const tensor& lse = {}, const tensor& row_maximum = {});

    /// The state of the stream so far, as bytes that a stream with the same queries, sizes and options can
    /// go on from, in another process or on another machine. They are the same bytes everywhere.
    [[nodiscard]] TILEWISE_API std::vector<std::byte> save() const;
    /// The same into memory of the caller's, which must be saved_bytes() long.
    TILEWISE_API void save(std::span<std::byte> to) const;
    [[nodiscard]] TILEWISE_API std::size_t saved_bytes() const;

    /// Goes on from a saved state; keys that this stream has seen are forgotten. Refuses what is not such a
    /// state, a truncated or damaged one, another version's, or that of other sizes, options or queries (of
    /// a score function it knows only whether there is one).
    ///
    /// The format, all numbers little-endian: the characters "TILEWISE"; 32-bit version, 1; 32-bit number of
    /// the header's bytes, 112; then in 64 bits each: all bytes, batch, heads, kv_heads, n_queries, head_dim,
    /// value_dim, key_position, keys so far, fingerprint of the options, fingerprint of the queries' values,
    /// and of everything else that was saved (FNV-1a, 64 bits). Then f32: per batch entry, key head, query
    /// token and head of the group m, l, the largest score and value_dim sums (contract.hpp); and per batch
    /// entry and key head the keys, then the values, of the chunk that is not whole.
    TILEWISE_API void restore(std::span<const std::byte> from);

    /// The constructor; `stream` is replaced only if that worked.
    TILEWISE_API static status try_make(const const_tensor& q, const stream_sizes& sizes, const options& how,
                                        std::optional<attention_stream>& stream) noexcept;
    TILEWISE_API status try_add(const const_tensor& k, const const_tensor& v) noexcept;
    TILEWISE_API status try_keys_added(std::int64_t& keys) const noexcept;
    TILEWISE_API status try_finish(const tensor& out, const tensor& lse = {},
                                   const tensor& row_maximum = {}) noexcept;
    TILEWISE_API status try_saved_bytes(std::size_t& bytes) const noexcept;
    TILEWISE_API status try_save(std::span<std::byte> to) const noexcept;
    TILEWISE_API status try_restore(std::span<const std::byte> from) noexcept;

private:
    explicit attention_stream(std::unique_ptr<detail::stream_state> made) noexcept;
    std::unique_ptr<detail::stream_state> state_;
};

}  // namespace tilewise

#endif

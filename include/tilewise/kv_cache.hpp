// A cache of keys and values for decoding: pages of any storage type, sequences that grow, fork and forget.
//
// A decode step is: rotate the new rows (rotary.hpp), append them, attend.

#ifndef TILEWISE_KV_CACHE_HPP
#define TILEWISE_KV_CACHE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <tilewise/attention.hpp>
#include <tilewise/element_type.hpp>
#include <tilewise/export.hpp>
#include <tilewise/status.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise {

/// What a kv_cache holds. All memory is allocated when it is made.
struct kv_cache_options {
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;   ///< of keys
    std::int64_t value_dim = 0;  ///< of values
    /// f32, f16, bf16, q8_0, q4_0, or i8, e4m3, e5m2 with a scale per token and head.
    element_type k_type = element_type::f32;
    element_type v_type = element_type::f32;
    /// Tokens of a page. Multiples of 128 are read in place; smaller pages waste less, and are copied chunk
    /// by chunk as they are read. As many as a sequence may have make the cache contiguous: one page a
    /// sequence.
    std::int64_t page_tokens = 128;
    std::int64_t pages = 0;          ///< all that there are, for all sequences together
    std::int64_t max_sequences = 1;  ///< at the same time
    std::int64_t max_tokens = 0;  ///< of one sequence, of those that are held; 0: as many as all pages have
    /// A sliding window: a token needs `window` tokens before it and itself, and pages that no later query
    /// can see are freed as tokens are appended. Attend with the same window_left, or a smaller one. None:
    /// all is kept.
    std::optional<std::int64_t> window = std::nullopt;
};

/// Keys and values of several sequences in pages of one pool.
///
/// Numbers of sequences are those that add() and fork() return; they are used again after remove(). Wrong
/// arguments throw std::invalid_argument, a full cache std::length_error, memory that cannot be had
/// std::bad_alloc; nothing has changed then. Member
/// functions that are const may be called from several threads at once, others not beside any other. Nothing
/// is allocated after construction, but for what attention() itself allocates.
///
/// Members that begin with try_ do the same, and return what the others throw (status.hpp). Of a cache that
/// has been moved from, nothing but destruction and assignment is allowed.
class kv_cache {
public:
    TILEWISE_API explicit kv_cache(const kv_cache_options& how);
    TILEWISE_API ~kv_cache();
    TILEWISE_API kv_cache(kv_cache&& other) noexcept;
    TILEWISE_API kv_cache& operator=(kv_cache&& other) noexcept;
    kv_cache(const kv_cache&) = delete;
    kv_cache& operator=(const kv_cache&) = delete;

    /// A new, empty sequence.
    TILEWISE_API int add();

    /// A new sequence that begins with the first `tokens` tokens of another one. Pages are shared, and copied
    /// only when one of the two writes to one of them.
    TILEWISE_API int fork(int sequence, std::int64_t tokens);

    /// Forgets a sequence.
    TILEWISE_API void remove(int sequence);

    /// Forgets the tokens from position `tokens` on. Not those that the window has dropped already: from
    /// first_position() to length().
    TILEWISE_API void truncate(int sequence, std::int64_t tokens);

    /// Appends tokens: k [1, kv_heads, tokens, head_dim] and v [1, kv_heads, tokens, value_dim], f32, f16 or
    /// bf16, any strides. They are converted, or quantised as the functions of quantize.hpp do it, one token
    /// and head at a time: what is stored does not depend on how many come at once.
    TILEWISE_API void append(int sequence, const const_tensor& k, const const_tensor& v);

    /// The position of the next token: how many have been appended.
    [[nodiscard]] TILEWISE_API std::int64_t length(int sequence) const;

    /// The position of the first token that is still held; 0 without a window.
    [[nodiscard]] TILEWISE_API std::int64_t first_position(int sequence) const;

    /// Pages that no sequence holds.
    [[nodiscard]] TILEWISE_API std::int64_t free_pages() const;

    /// All memory that the cache holds, in bytes: pages, scales and tables.
    [[nodiscard]] TILEWISE_API std::size_t memory_bytes() const;

    /// tilewise::attention for one batch entry of q and out per sequence, over all that the sequence holds:
    /// q [sequences, heads, n_queries, head_dim]. By default, the last query is the last token of its
    /// sequence, and the causal mask is what is set in `how`; query_position, where it is given, holds for
    /// all. The members of `how` that say which keys there are (key_lengths, key_position, key_positions,
    /// key_starts, block_table) must not be set. The bits are those of attention() on keys and values that
    /// follow each other.
    TILEWISE_API void attention(std::span<const int> sequences, const const_tensor& q, const tensor& out,
                                const options& how = {});

    /// tilewise::plan_attention for such a call: how much scratch memory it takes, among other things.
    [[nodiscard]] TILEWISE_API plan plan_attention(std::span<const int> sequences, const const_tensor& q,
                                                   const tensor& out, const options& how = {});

    /// The constructor; `cache` is replaced only if that worked.
    TILEWISE_API static status try_make(const kv_cache_options& how, std::optional<kv_cache>& cache) noexcept;
    TILEWISE_API status try_add(int& sequence) noexcept;
    TILEWISE_API status try_fork(int sequence, std::int64_t tokens, int& forked) noexcept;
    TILEWISE_API status try_remove(int sequence) noexcept;
    TILEWISE_API status try_truncate(int sequence, std::int64_t tokens) noexcept;
    TILEWISE_API status try_append(int sequence, const const_tensor& k, const const_tensor& v) noexcept;
    TILEWISE_API status try_length(int sequence, std::int64_t& tokens) const noexcept;
    TILEWISE_API status try_first_position(int sequence, std::int64_t& position) const noexcept;
    TILEWISE_API status try_attention(std::span<const int> sequences, const const_tensor& q,
                                      const tensor& out, const options& how = {}) noexcept;
    TILEWISE_API status try_plan_attention(std::span<const int> sequences, const const_tensor& q,
                                           const tensor& out, const options& how, plan& result) noexcept;

private:
    struct state;
    explicit kv_cache(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
};

}  // namespace tilewise

#endif

// Attention, computed tile by tile with an online softmax: the T x T score matrix is never in memory.
//
// The arithmetic is a contract (see README.md and reference.hpp): for a given input the result is the same
// to the last bit, whatever the threads, tiles, instruction set and memory layout.

#ifndef TILEWISE_ATTENTION_HPP
#define TILEWISE_ATTENTION_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <tilewise/export.hpp>
#include <tilewise/isa.hpp>
#include <tilewise/parallel_for.hpp>
#include <tilewise/score_tile.hpp>
#include <tilewise/status.hpp>
#include <tilewise/tensor.hpp>

namespace tilewise {

/// Which keys a query may see. With n_queries and n_keys tokens, query i sees key j
///   none          always;
///   bottom_right  if j - (n_keys - n_queries) <= i: the last query sees all keys, as with a KV cache;
///   top_left      if j <= i: the first query sees the first key only.
/// The two alignments agree when n_queries == n_keys. A query that sees no key gives 0, and lse -inf.
enum class causal : std::uint8_t { none, bottom_right, top_left };

/// Which arithmetic is promised.
///
/// exact: f32 (f64, where q is) with fused multiply-adds in one fixed order, the same bits everywhere.
///
/// fastest: where q, k and v all are bf16 and the CPU multiplies pairs of bf16 (AVX512_BF16, Arm's BF16),
/// those instructions, and weights rounded to bf16. Up to twice as fast, with an error below that of rounding
/// the result to bf16. Also one fixed order: the same bits whatever the threads, tiles, memory layout, pages,
/// batch, prefill or decode, but others on x86 than on Arm. For all else (other types, quantised keys, other
/// CPUs, attention_stream) it is exact; plan::arithmetic says which one a call gets.
enum class arithmetic : std::uint8_t { exact, fastest };

/// Ranges of keys given for each query row: a row sees key j only if first <= j < last. Both are tensors of
/// i32, [batch or 1, heads or 1, query tokens or 1, 1]; an extent of 1 serves all. Absent if data is null.
struct key_ranges {
    const_tensor first;
    const_tensor last;
};

/// A mask in blocks: query tokens of block i / query_block see keys of block j / key_block where `visible`
/// (boolean, [batch or 1, heads or 1, query blocks, key blocks]) is true. Absent if data is null.
struct block_mask {
    const_tensor visible;
    std::int64_t query_block = 0;
    std::int64_t key_block = 0;
};

/// A function of the caller's that changes scores in place, for experiments (as PyTorch's FlexAttention has
/// it). Absent if `call` is null.
///
/// It is called on scaled scores, after soft cap, bias and ALiBi and before masks, which need no help from
/// it: a score of -inf masks its key. Tiles are of any shape, may be seen more than once and in any order,
/// and may hold keys that a mask hides from some rows (what it writes there is ignored); calls come from
/// several threads at once. The promise of equal bits holds if each score that it writes depends on nothing
/// but the score, its batch entry, head, query and key. It must not throw. Scores are scaled in a pass of
/// their own, so that a call is slower than one with the built-in modifiers by what the function takes and
/// some percent.
struct score_function {
    void (*call)(void* context, const score_tile& tile) noexcept = nullptr;
    void* context = nullptr;
};

/// Results besides the output and lse, without the T x T matrix. Each is f32, or f64 where q is, and written
/// only if its data is not null. A weight is softmax(...)[query, key], 0 where the key is masked; a sink
/// takes its share first, so that a row's weights then sum to less than 1. All have the same bits everywhere,
/// too.
struct extra_results {
    /// The largest score (scaled, after all modifiers) of each query row: [batch, heads, query tokens, 1].
    /// -inf for a row that sees no key, NaN for a row whose weights are NaN.
    tensor row_maximum = {};

    /// The entropy of each query row's weights, in nats: -sum w ln w; [batch, heads, query tokens, 1]. 0 for
    /// a row that sees no key. Recomputes the weights: about half the time of the call again.
    tensor entropy = {};

    /// The sum of each key's weights over the query tokens: [batch, heads, 1, keys]. What cache eviction
    /// ranks keys by (H2O, arXiv:2306.14048). Recomputes the weights: about the time of the call again;
    /// takes 8 bytes of scratch per query row.
    tensor key_weights = {};

    /// Query tokens, ascending, whose weights on all keys are wanted, and where to:
    /// [batch, heads, weight_rows.size(), keys].
    std::span<const std::int64_t> weight_rows = {};
    tensor weights = {};
};

/// What attention() computes beyond its tensors. Name the members that you set
/// (`{.causal = tilewise::causal::bottom_right}`): members are added over time.
struct options {
    /// Factor on the dot products; 1 / sqrt(head_dim of the key) by default. Any finite value is allowed.
    std::optional<float> scale = std::nullopt;

    /// The same in f64, in place of scale, where q, k, v and out are f64. (The default is not rounded to f32
    /// there; soft_cap, alibi_slopes and sinks are f32 always.)
    std::optional<double> scale_f64 = std::nullopt;

    /// The causal mask; none by default.
    tilewise::causal causal = tilewise::causal::none;

    // Masks. A query sees a key only if all of them, and the causal mask, let it. What can be said as a range
    // of keys per query row is never made a tensor: keys that no row of a tile sees cost nothing, and are not
    // read, nor their values.

    /// The key position of query token 0; query token i is at query_position + i. By default key_position +
    /// n_keys - n_queries (the key length of the batch entry counts), or key_position with causal::top_left.
    /// With it, a long prompt can be computed in pieces, and the causal mask, windows, documents and ALiBi
    /// mean the same as in one call. Contradicts causal::top_left unless it is key_position.
    std::optional<std::int64_t> query_position = std::nullopt;

    /// The position of key token 0; key token j is at key_position + j. More than 0 where earlier keys have
    /// been dropped, as from a cache that holds a window only: then results have the bits that they would
    /// have if the dropped keys were there and masked. At least 0. (Tensors of masks and biases begin with
    /// key token 0 all the same; prefix, documents and ranges speak of positions.)
    std::int64_t key_position = 0;

    /// One for each batch entry, in place of key_position. Empty: all have key_position.
    std::span<const std::int64_t> key_positions = {};

    /// Sliding window: a query at position p sees keys from p - window_left and up to p + window_right; open
    /// on the side that is not set. At least 0.
    std::optional<std::int64_t> window_left = std::nullopt;
    std::optional<std::int64_t> window_right = std::nullopt;

    /// The first `prefix` keys are visible whatever the causal mask and the window say (prefix-LM; "attention
    /// sink" tokens beside a window).
    std::int64_t prefix = 0;

    /// A query sees only keys of its own block of so many positions (chunked attention as in Llama 4); 0: no
    /// such mask.
    std::int64_t attention_chunk = 0;

    /// Documents packed in one sequence: ascending boundaries, document d being positions documents[d] ..
    /// documents[d + 1] - 1. A query sees only keys of its own document; one in none sees none.
    /// document_boundaries (documents.hpp) makes them from one id per token.
    std::span<const std::int64_t> documents = {};

    /// Per batch entry, how many keys it has, at most n_keys; the rest is padding and never read. Empty: all
    /// have n_keys.
    std::span<const std::int64_t> key_lengths = {};

    /// Sequences of different lengths, packed one after the other in batch entry 0 (q and k have batch 1):
    /// sequence s has queries query_starts[s] .. query_starts[s + 1] - 1 and keys key_starts[s] ..
    /// key_starts[s + 1] - 1, and is attended to by itself, as a batch entry is ("cu_seqlens" in
    /// FlashAttention). One start more than sequences; ascending. Rows of q outside of all sequences are not
    /// touched. In all other options, token numbers and positions begin at 0 in each sequence, batch means
    /// sequences, and extents of tokens those of the longest sequence; but lse and other results per query
    /// row have the layout of q, key_weights that of k, and weight_rows are tokens of q. Both or none.
    std::span<const std::int64_t> query_starts = {};
    std::span<const std::int64_t> key_starts = {};

    /// Keys and values in pages, in any order ("paged attention", Kwon et al., arXiv:2309.06180): k and v are
    /// pools [pages, kv_heads, tokens of a page, head_dim], and key token j of batch entry b is token j % n
    /// of page block_table[b, j / n], where n is the number of tokens of a page. i32, [batch, 1, 1, most
    /// pages of an entry]; page numbers beyond a key length are not read. Needs key_lengths; n_keys is the
    /// largest of them. With query_starts, batch means sequences, and key_starts stays empty. Pages of a
    /// multiple of 128 keys are read in place, smaller ones copied chunk by chunk. Absent if data is null.
    const_tensor block_table = {};

    /// Ranges of keys per query row.
    key_ranges ranges = {};

    /// A boolean mask: boolean or bit, true where the key is visible; [batch or 1, heads or 1, query tokens
    /// or 1, keys], an extent of 1 serving all. Absent if data is null.
    const_tensor mask = {};

    /// A mask in blocks.
    block_mask blocks = {};

    // Score modifiers, in the order in which they apply.

    /// Scores become soft_cap * tanh(score / soft_cap), as in Gemma 2 (arXiv:2408.00118); 0: no cap.
    float soft_cap = 0.0F;

    /// Added to the scaled scores: f32, f16 or bf16, or f64 or f32 where q is f64; shaped as mask is. -inf
    /// masks the key. Absent if data is null.
    const_tensor bias = {};

    /// One slope per query head: slope * |query position - key position| is subtracted from the scores
    /// (ALiBi, Press et al., arXiv:2108.12409). Empty: none.
    std::span<const float> alibi_slopes = {};

    /// A function of the caller's, last in the order. Not with f64: its scores are f32.
    tilewise::score_function score_function = {};

    /// One score per query head that belongs to no key: it takes part in the softmax, and its value is 0
    /// (gpt-oss; Xiao et al., arXiv:2309.17453). -inf is the same as none. Empty: none.
    std::span<const float> sinks = {};

    /// Where to write the log-sum-exp (natural logarithm) of each query row's scaled scores:
    /// [batch, heads, query tokens, 1], see row_values. Nothing is written when its data is null.
    tensor lse = {};

    /// Other results.
    extra_results extra = {};

    /// The most threads that the call may use; 0 means what OpenMP would use (omp_get_max_threads). Fewer
    /// are used when there is too little work to be worth waking them. With 1, the calling thread does all,
    /// and OpenMP is not called. A library built without OpenMP has only that thread, and parallel_for.
    int threads = 0;

    /// The arithmetic that is asked for; exact by default. With fastest, subnormal numbers of q, k and v
    /// count as 0, and weights as results (extra) are those that were used: rounded to bf16 before they are
    /// divided by their sum.
    tilewise::arithmetic arithmetic = tilewise::arithmetic::exact;

    /// The most scratch memory per thread, in bytes; 0 means the default, which is at most 512 KiB at
    /// head_dim 128. A smaller budget makes smaller tiles, down to a single panel of query rows (one below
    /// which there is no smaller tile is not an error). It changes speed and no bit.
    std::size_t scratch_budget = 0;

    /// Memory to use for all scratch, instead of allocating any; none if its data is null. It is written,
    /// must overlap no tensor, and serves one call at a time. At a multiple of 64, as many bytes as
    /// plan_attention states without one are enough; elsewhere, 63 more. With fewer bytes, tiles are made
    /// smaller and then threads fewer, until they fit; if a single panel of query rows on one thread does
    /// not, that is an error which names the least size. It changes speed and no bit.
    ///
    /// With it, and with 1 thread or parallel_for, a call allocates nothing, takes no lock and makes no
    /// system call. (But for the first call in a process, which looks at the CPU; plan_attention counts as
    /// one.)
    std::span<std::byte> workspace = {};

    /// Threads of the host's own, instead of OpenMP's; `threads` must say how many then.
    tilewise::parallel_for parallel_for = {};
};

/// Computes softmax(scale * Q K^T + mask) V for every batch entry and query head.
///
///   q    [batch, heads, n_queries, head_dim]
///   k    [batch, kv_heads, n_keys, head_dim]
///   v    [batch, kv_heads, n_keys, value_dim]
///   out  [batch, heads, n_queries, value_dim], written; must not overlap an input, lse or itself
///
/// heads is a multiple of kv_heads; query head h uses key head h / (heads / kv_heads) (grouped-query and
/// multi-query attention). Any extent may be 0: then there is nothing to do, or rows that see no key.
/// q, k, v and out are f32, f16 or bf16, each on its own; k and v may also be quantised (quantized.hpp); lse
/// is f32. Or all of them are f64, and so are lse and all other results: then all is computed in f64, which
/// takes about twice as long, and more with few query rows; where the instruction set is sse2, much longer.
/// Any strides are allowed for inputs; those of out and lse must give every element a place of its own.
///
/// A row that sees no key is 0, and its lse is -inf, or the sink's score. NaN and infinities follow IEEE 754
/// through the formula in the rows that see them, and never reach a row that does not see them. A NaN result
/// is always the quiet NaN 0x7fc00000 (f16: 0x7e00, bf16: 0x7fc0, f64: 0x7ff8000000000000), and a zero result
/// is +0.
///
/// Throws std::invalid_argument, naming the argument, what was given and what is allowed, before anything
/// is written; std::bad_alloc if the scratch memory cannot be had (nothing is written then either).
/// Allocates the scratch memory that plan_attention states, and frees it, unless it has options::workspace.
/// Safe to call from several threads at once; changes no global state (rounding mode, flush-to-zero, OpenMP
/// settings). After fork, the child may compute as well, the thread that forked on one thread alone if it had
/// used several before. (If that thread had used OpenMP by other means, set options::threads to 1: GNU's
/// OpenMP would wait for its lost threads.)
///
/// The online softmax over tiles is that of Milakov and Gimelshein (arXiv:1805.02867) and FlashAttention
/// (Dao et al., arXiv:2205.14135); here its running maximum is an integer power of two, so that rescaling
/// rounds nothing.
TILEWISE_API void attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                            const tensor& out, const options& how = {});

/// The same, and returns what that throws (status.hpp).
TILEWISE_API status try_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                                  const tensor& out, const options& how = {}) noexcept;

/// What attention() would do for these arguments.
struct plan {
    tilewise::isa isa = tilewise::isa::sse2;                        ///< the kernels that run
    tilewise::arithmetic arithmetic = tilewise::arithmetic::exact;  ///< the one that these arguments get
    int threads = 1;                                                ///< threads that take part
    std::int64_t tasks = 0;       ///< units of work, handed out dynamically (some at once), heaviest first
    std::int64_t chunk_keys = 0;  ///< keys per tile (fixed by the arithmetic)
    std::int64_t panel_rows = 0;  ///< query rows side by side in SIMD registers
    std::int64_t block_rows = 0;  ///< query rows of one task, which share each tile of keys and values
    std::int64_t key_parts = 1;   ///< tasks that share the keys of one block of query rows
    std::size_t scratch_bytes_per_thread = 0;
    std::size_t shared_scratch_bytes = 0;  ///< what tasks leave for others or later, and lists of sequences
    std::size_t scratch_bytes = 0;         ///< all that the call allocates, or takes of its workspace
    double visible_scores = 0;  ///< pairs of a query row and a key that it sees, over batch and heads
    double flops = 0;           ///< 2 (head_dim + value_dim) per visible score
};

/// Plans attention() with the same arguments and the same errors; computes and allocates nothing.
/// Thread-safe.
[[nodiscard]] TILEWISE_API plan plan_attention(const const_tensor& q, const const_tensor& k,
                                               const const_tensor& v, const tensor& out,
                                               const options& how = {});

/// The same; the plan is written only if it could be made.
TILEWISE_API status try_plan_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                                       const tensor& out, const options& how, plan& result) noexcept;

}  // namespace tilewise

#endif

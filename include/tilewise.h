/* Tilewise for C, and for every language that can call C: C99, and the same binary interface in all versions
   that have the same major and minor number.

   The functions do what those of the C++ headers in tilewise/ do, which document every member and option at
   length; here is only what is different. No exception leaves them. All are safe to call from several
   threads at once.

   Structures that begin with a size grow over time, at their end: that member says how large the caller's is,
   and zeros in all others are the defaults: `tilewise_options how = {.size = sizeof how};`. Pointers to
   options may be null for the defaults, and pointers to what a function writes only where it says so.

   The library can be compiled without exceptions (tilewise/status.hpp); these functions are the same. */

#ifndef TILEWISE_H
#define TILEWISE_H

/* NOLINTBEGIN(modernize-*): this is C. */

#include <stddef.h>
#include <stdint.h>

#include <tilewise/export.hpp>
#include <tilewise/version.hpp>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns. Unless it is TILEWISE_OK, nothing was written or changed, and tilewise_last_error
   says why. */
typedef int32_t tilewise_status;
enum {
    TILEWISE_OK = 0,
    TILEWISE_INVALID_ARGUMENT = 1,
    TILEWISE_OUT_OF_MEMORY = 2,
    TILEWISE_INTERNAL_ERROR = 3,
    TILEWISE_CACHE_FULL = 4,     /* a cache has no page, sequence or place left */
    TILEWISE_STREAM_FINISHED = 5 /* a stream has been finished */
};

/* The message of the last error in the calling thread, "" if there was none. It names the argument, what was
   given and what is allowed, and stays until the next error in this thread. Never null. */
TILEWISE_API const char* tilewise_last_error(void);

/* The version of the library that runs, "0.1.0"; TILEWISE_VERSION_MAJOR and so on are those of this header.
 */
TILEWISE_API const char* tilewise_version(void);

/* --- instruction sets (tilewise/isa.hpp) --- */

typedef int32_t tilewise_isa;
enum { TILEWISE_SSE2 = 0, TILEWISE_AVX2 = 1, TILEWISE_AVX512 = 2, TILEWISE_NEON = 3 };

/* Writes as many of the available instruction sets as there is room for; returns how many there are. */
TILEWISE_API int32_t tilewise_available_isas(tilewise_isa* isas, int32_t room);
TILEWISE_API const char* tilewise_isa_name(tilewise_isa isa);
TILEWISE_API tilewise_status tilewise_isa_from_name(const char* name, tilewise_isa* isa);
TILEWISE_API tilewise_status tilewise_active_isa(tilewise_isa* isa);
TILEWISE_API tilewise_status tilewise_force_isa(tilewise_isa isa);
TILEWISE_API void tilewise_unforce_isa(void);

/* --- tensors (tilewise/tensor.hpp) --- */

typedef int32_t tilewise_type;
enum {
    TILEWISE_F32 = 0,
    TILEWISE_F16 = 1,
    TILEWISE_BF16 = 2,
    TILEWISE_Q8_0 = 3,
    TILEWISE_Q4_0 = 4,
    TILEWISE_I8 = 5,
    TILEWISE_E4M3 = 6,
    TILEWISE_E5M2 = 7,
    TILEWISE_I32 = 8,
    TILEWISE_BOOLEAN = 9,
    TILEWISE_BIT = 10,
    TILEWISE_F64 = 11
};

enum {
    TILEWISE_AXIS_BATCH = 0,
    TILEWISE_AXIS_HEADS = 1,
    TILEWISE_AXIS_TOKENS = 2,
    TILEWISE_AXIS_HEAD_DIM = 3
};

/* A view [batch, heads, tokens, head_dim]; strides count elements. Inputs are only read, although `data` is
   not const. This structure does not grow. */
typedef struct tilewise_tensor {
    void* data;
    tilewise_type type;
    int32_t reserved; /* 0 */
    int64_t extents[4];
    int64_t strides[4];
    const float* scales; /* null for types without */
    int64_t scale_strides[4];
} tilewise_tensor;

/* Contiguous, in memory order [batch, heads, tokens, head_dim] and [batch, tokens, heads, head_dim]. */
TILEWISE_API tilewise_tensor tilewise_bhsd(const void* data, tilewise_type type, int64_t batch, int64_t heads,
                                           int64_t tokens, int64_t head_dim);
TILEWISE_API tilewise_tensor tilewise_bshd(const void* data, tilewise_type type, int64_t batch,
                                           int64_t tokens, int64_t heads, int64_t head_dim);

/* The same view with scales that lie side by side. */
enum { TILEWISE_SCALES_PER_TOKEN = 0, TILEWISE_SCALES_PER_CHANNEL = 1, TILEWISE_SCALES_PER_HEAD = 2 };
TILEWISE_API tilewise_status tilewise_with_scales(const tilewise_tensor* view, const float* scales,
                                                  int32_t shared, tilewise_tensor* result);

/* Indices first .. first + count - 1 of one axis. */
TILEWISE_API tilewise_status tilewise_slice(const tilewise_tensor* view, int32_t axis, int64_t first,
                                            int64_t count, tilewise_tensor* part);

/* --- options (tilewise/attention.hpp) --- */

enum { TILEWISE_CAUSAL_NONE = 0, TILEWISE_CAUSAL_BOTTOM_RIGHT = 1, TILEWISE_CAUSAL_TOP_LEFT = 2 };
enum { TILEWISE_EXACT = 0, TILEWISE_FASTEST = 1 }; /* arithmetic */

/* What a score function sees. */
typedef struct tilewise_score_tile {
    int64_t batch;
    int64_t head;
    int64_t first_query;
    int64_t queries;
    int64_t query_position;
    int64_t first_key;
    int64_t keys;
    float* scores;
    int64_t query_stride;
    int64_t key_stride;
} tilewise_score_tile;

typedef void (*tilewise_score_function)(void* context, const tilewise_score_tile* tile);

/* See tilewise/parallel_for.hpp. */
typedef void (*tilewise_parallel_for)(void* context, int threads,
                                      void (*body)(void* body_context, size_t index), void* body_context);

/* Tensors whose data is null, arrays of length 0 and null functions are absent. Members named has_... say
   whether the one of that name is set: 0 or 1. */
typedef struct tilewise_options {
    size_t size; /* sizeof(tilewise_options) */

    float scale;
    int32_t has_scale;
    int32_t causal;
    int32_t arithmetic;

    int32_t has_query_position;
    int32_t has_window_left;
    int32_t has_window_right;
    int32_t threads;
    int64_t query_position;
    int64_t key_position;
    int64_t window_left;
    int64_t window_right;
    int64_t prefix;
    int64_t attention_chunk;

    const int64_t* documents;
    int64_t document_count; /* of boundaries */
    const int64_t* key_lengths;
    int64_t key_length_count;
    const int64_t* query_starts;
    const int64_t* key_starts;
    int64_t start_count; /* of each of the two: one more than sequences */

    tilewise_tensor first_keys; /* ranges of keys per query row */
    tilewise_tensor last_keys;
    tilewise_tensor mask;
    tilewise_tensor blocks; /* a mask in blocks */
    int64_t query_block;
    int64_t key_block;

    tilewise_tensor bias;
    const float* alibi_slopes;
    int64_t alibi_slope_count;
    const float* sinks;
    int64_t sink_count;
    tilewise_score_function score_function;
    void* score_context;
    float soft_cap;
    int32_t reserved; /* 0 */

    tilewise_tensor lse;
    tilewise_tensor row_maximum;
    tilewise_tensor entropy;
    tilewise_tensor key_weights;
    tilewise_tensor weights;
    const int64_t* weight_rows;
    int64_t weight_row_count;

    size_t scratch_budget;
    void* workspace;
    size_t workspace_bytes;
    tilewise_parallel_for parallel_for;
    void* parallel_context;

    /* Added later: callers whose structure ends before here work as well. */

    const int64_t* key_positions; /* of each sequence's first key, in place of key_position */
    int64_t key_position_count;
    tilewise_tensor block_table; /* i32, [batch, 1, 1, pages]: k and v are pools of pages, and need
                                    key_lengths; key_starts is null then where sequences are packed */
    double scale_f64;            /* in place of scale, where q, k, v and out are f64 */
    int64_t has_scale_f64;
} tilewise_options;

/* --- attention (tilewise/attention.hpp) --- */

/* `how` may be null for the defaults. */
TILEWISE_API tilewise_status tilewise_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                                const tilewise_tensor* v, const tilewise_tensor* out,
                                                const tilewise_options* how);

/* The naive formulation: slow, and the same bits (tilewise/reference.hpp). */
TILEWISE_API tilewise_status tilewise_reference_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                                          const tilewise_tensor* v,
                                                          const tilewise_tensor* out,
                                                          const tilewise_options* how);

typedef struct tilewise_plan {
    size_t size; /* sizeof(tilewise_plan), set by the caller */
    tilewise_isa isa;
    int32_t threads;
    int64_t tasks;
    int64_t chunk_keys;
    int64_t panel_rows;
    int64_t block_rows;
    int64_t key_parts;
    size_t scratch_bytes_per_thread;
    size_t shared_scratch_bytes;
    size_t scratch_bytes;
    double visible_scores;
    double flops;

    /* Added later. */

    int32_t arithmetic; /* that the call gets */
    int32_t reserved;   /* 0 */
} tilewise_plan;

/* What tilewise_attention would do for these arguments. */
TILEWISE_API tilewise_status tilewise_plan_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                                     const tilewise_tensor* v, const tilewise_tensor* out,
                                                     const tilewise_options* how, tilewise_plan* plan);

/* --- attention over parts of the keys (tilewise/merge.hpp) --- */

/* What attention gave for the same queries and some of the keys: out [batch, heads, tokens, value_dim], and
   its log-sum-exp, f32 [batch, heads, tokens, 1]. This structure does not grow. */
typedef struct tilewise_partial_result {
    tilewise_tensor out;
    tilewise_tensor lse;
} tilewise_partial_result;

/* Attention over all keys from that over parts of them, each key being in one part; within what rounding left
   in the parts, and the same bits everywhere. `out` and `lse`, which may be null, may be the views of one of
   the parts. Allocates a few bytes per part. */
TILEWISE_API tilewise_status tilewise_merge(const tilewise_partial_result* parts, int64_t part_count,
                                            const tilewise_tensor* out, const tilewise_tensor* lse);

/* --- rotary position embedding (tilewise/rotary.hpp) --- */

enum {
    TILEWISE_ROTARY_HALVES = 0,     /* pairs are elements i and i + dims / 2 */
    TILEWISE_ROTARY_INTERLEAVED = 1 /* 2 i and 2 i + 1 */
};

typedef struct tilewise_rotary_options {
    size_t size;      /* sizeof(tilewise_rotary_options) */
    int32_t pairs;    /* TILEWISE_ROTARY_... */
    int32_t has_dims; /* 0: all elements of a row are turned */
    int64_t dims;
    double theta;             /* 0: 10000 */
    int64_t first_position;   /* of token 0, unless there are positions: */
    const int64_t* positions; /* of each token, of all batch entries or of each of them */
    int64_t position_count;
} tilewise_rotary_options;

/* Turns pairs of elements of x, [batch, heads, tokens, head_dim] in f32, f16 or bf16, in place, by angles
   proportional to the tokens' positions; the sines have the same bits everywhere. Allocates
   nothing for rows of which 512 elements or fewer are turned. */
TILEWISE_API tilewise_status tilewise_rotary_embedding(const tilewise_tensor* x,
                                                       const tilewise_rotary_options* how);

/* The same with tables, f32 [1, 1, positions, dims / 2]: a token at position p uses row p. */
TILEWISE_API tilewise_status tilewise_rotary_embedding_by_tables(const tilewise_tensor* x,
                                                                 const tilewise_tensor* cosines,
                                                                 const tilewise_tensor* sines,
                                                                 const tilewise_rotary_options* how);

/* Fills such tables. */
TILEWISE_API tilewise_status tilewise_rotary_tables(const tilewise_tensor* cosines,
                                                    const tilewise_tensor* sines,
                                                    const tilewise_rotary_options* how);

/* --- a cache of keys and values (tilewise/kv_cache.hpp) --- */

/* Keys and values of several sequences in pages of one pool. Functions whose cache is const may be called
   from several threads at once, others not beside any other on the same cache. Sequences are numbered from 0;
   a number that names none is refused. */
typedef struct tilewise_kv_cache tilewise_kv_cache;

typedef struct tilewise_kv_cache_options {
    size_t size; /* sizeof(tilewise_kv_cache_options) */
    int64_t kv_heads;
    int64_t head_dim;
    int64_t value_dim;
    tilewise_type k_type; /* f32, f16, bf16, q8_0, q4_0, or i8, e4m3, e5m2 with a scale per token and head */
    tilewise_type v_type;
    int64_t page_tokens;   /* 0: 128 */
    int64_t pages;         /* of all sequences together */
    int64_t max_sequences; /* at the same time; 0: 1 */
    int64_t max_tokens;    /* of a sequence, of those that are held; 0: as many as all pages have */
    int64_t window;        /* a sliding window: pages that no later query can see are freed; see has_window */
    int32_t has_window;    /* 0: all is kept */
    int32_t reserved;      /* 0 */
} tilewise_kv_cache_options;

/* Makes an empty cache, and allocates all its memory: nothing else here allocates but attention without a
   workspace. `how` is needed. */
TILEWISE_API tilewise_status tilewise_kv_cache_create(const tilewise_kv_cache_options* how,
                                                      tilewise_kv_cache** cache);

/* Frees a cache. Null is none. */
TILEWISE_API void tilewise_kv_cache_destroy(tilewise_kv_cache* cache);

/* A new, empty sequence; TILEWISE_CACHE_FULL if there are max_sequences. */
TILEWISE_API tilewise_status tilewise_kv_cache_add(tilewise_kv_cache* cache, int32_t* sequence);

/* A new sequence that begins with the first `tokens` tokens of another one. Pages are shared, and copied only
   when one of the two writes to one of them. */
TILEWISE_API tilewise_status tilewise_kv_cache_fork(tilewise_kv_cache* cache, int32_t sequence,
                                                    int64_t tokens, int32_t* forked);

/* Forgets a sequence, whose number may be given to another one. */
TILEWISE_API tilewise_status tilewise_kv_cache_remove(tilewise_kv_cache* cache, int32_t sequence);

/* Forgets the tokens from position `tokens` on: from the first position that is held to the length. */
TILEWISE_API tilewise_status tilewise_kv_cache_truncate(tilewise_kv_cache* cache, int32_t sequence,
                                                        int64_t tokens);

/* Appends k [1, kv_heads, tokens, head_dim] and v [1, kv_heads, tokens, value_dim], f32, f16 or bf16, which
   are converted or quantised one token and head at a time. TILEWISE_CACHE_FULL if there is no room for all.
 */
TILEWISE_API tilewise_status tilewise_kv_cache_append(tilewise_kv_cache* cache, int32_t sequence,
                                                      const tilewise_tensor* k, const tilewise_tensor* v);

/* The position of the next token: how many have been appended. */
TILEWISE_API tilewise_status tilewise_kv_cache_length(const tilewise_kv_cache* cache, int32_t sequence,
                                                      int64_t* tokens);

/* The position of the first token that is still held; 0 without a window. */
TILEWISE_API tilewise_status tilewise_kv_cache_first_position(const tilewise_kv_cache* cache,
                                                              int32_t sequence, int64_t* position);

/* Pages that no sequence holds; 0 of a null cache. */
TILEWISE_API int64_t tilewise_kv_cache_free_pages(const tilewise_kv_cache* cache);

/* All memory that the cache holds, in bytes; 0 of a null cache. */
TILEWISE_API size_t tilewise_kv_cache_memory_bytes(const tilewise_kv_cache* cache);

/* Attention for one batch entry of q and out per sequence, over all that the sequence holds: q [sequences,
   heads, tokens, head_dim]. By default the last query is the last token of its sequence. `how` must not say
   which keys there are (key_lengths, key_position, key_positions, key_starts, block_table). */
TILEWISE_API tilewise_status tilewise_kv_cache_attention(tilewise_kv_cache* cache, const int32_t* sequences,
                                                         int64_t sequence_count, const tilewise_tensor* q,
                                                         const tilewise_tensor* out,
                                                         const tilewise_options* how);

/* What that would do, and how much scratch memory it takes. */
TILEWISE_API tilewise_status tilewise_kv_cache_plan_attention(
    tilewise_kv_cache* cache, const int32_t* sequences, int64_t sequence_count, const tilewise_tensor* q,
    const tilewise_tensor* out, const tilewise_options* how, tilewise_plan* plan);

/* --- keys and values that come piece by piece (tilewise/stream.hpp) --- */

/* Attention for queries that are there from the start: the bits of one call, however the keys are cut into
   pieces. What q and the options point to must stay valid and unchanged until the stream is finished or
   destroyed. One call at a time on the same stream. */
typedef struct tilewise_attention_stream tilewise_attention_stream;

typedef struct tilewise_stream_sizes {
    size_t size;      /* sizeof(tilewise_stream_sizes) */
    int64_t kv_heads; /* 0: 1 */
    int64_t value_dim;
    int32_t has_total_keys; /* needed where options speak of query positions, and do not say them */
    int32_t reserved;       /* 0 */
    int64_t total_keys;
} tilewise_stream_sizes;

/* Makes a stream for q [batch, heads, tokens, head_dim], and allocates its memory (tilewise/stream.hpp says
   how much). `sizes` is needed. Options that are tensors over all keys, key lengths, packed sequences, and
   results that are not arguments of finish are refused. */
TILEWISE_API tilewise_status tilewise_stream_create(const tilewise_tensor* q,
                                                    const tilewise_stream_sizes* sizes,
                                                    const tilewise_options* how,
                                                    tilewise_attention_stream** stream);

/* Frees a stream. Null is none. */
TILEWISE_API void tilewise_stream_destroy(tilewise_attention_stream* stream);

/* The next keys [batch, kv_heads, n, head_dim] and their values [batch, kv_heads, n, value_dim], of any type
   and strides; they are no longer needed then. */
TILEWISE_API tilewise_status tilewise_stream_add(tilewise_attention_stream* stream, const tilewise_tensor* k,
                                                 const tilewise_tensor* v);

/* Keys so far. */
TILEWISE_API tilewise_status tilewise_stream_keys_added(const tilewise_attention_stream* stream,
                                                        int64_t* keys);

/* Writes the results, and frees the stream's memory; the stream can only be destroyed then. `lse` and
   `row_maximum`, f32 [batch, heads, tokens, 1], may be null. */
TILEWISE_API tilewise_status tilewise_stream_finish(tilewise_attention_stream* stream,
                                                    const tilewise_tensor* out, const tilewise_tensor* lse,
                                                    const tilewise_tensor* row_maximum);

/* The bytes of the state so far. */
TILEWISE_API tilewise_status tilewise_stream_saved_bytes(const tilewise_attention_stream* stream,
                                                         size_t* bytes);

/* Writes the state into so many bytes, which must be what tilewise_stream_saved_bytes says. */
TILEWISE_API tilewise_status tilewise_stream_save(const tilewise_attention_stream* stream, void* to,
                                                  size_t bytes);

/* Goes on from a saved state, of a stream with the same queries, sizes and options, anywhere. Refuses what is
   not one, and what was damaged. */
TILEWISE_API tilewise_status tilewise_stream_restore(tilewise_attention_stream* stream, const void* from,
                                                     size_t bytes);

/* --- quantising (tilewise/quantize.hpp) --- */

/* 32 values to a block of 34 (q8_0) or 18 bytes (q4_0); `count` is a multiple of 32. */
TILEWISE_API tilewise_status tilewise_quantize_q8_0(const float* values, int64_t count, void* blocks);
TILEWISE_API tilewise_status tilewise_quantize_q4_0(const float* values, int64_t count, void* blocks);

/* The tokens of one head, [tokens][head_dim], with a scale for each token or each index of head_dim. */
TILEWISE_API tilewise_status tilewise_quantize_i8_per_token(const float* values, int64_t tokens,
                                                            int64_t head_dim, int8_t* numbers, float* scales);
TILEWISE_API tilewise_status tilewise_quantize_i8_per_channel(const float* values, int64_t tokens,
                                                              int64_t head_dim, int8_t* numbers,
                                                              float* scales);

/* With one scale. */
TILEWISE_API tilewise_status tilewise_quantize_e4m3(const float* values, int64_t count, uint8_t* numbers,
                                                    float* scale);
TILEWISE_API tilewise_status tilewise_quantize_e5m2(const float* values, int64_t count, uint8_t* numbers,
                                                    float* scale);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */

#endif

/* Tilewise for C, and for every language that can call C: C99, and the same binary interface in all versions
   that have the same major and minor number.

   The functions do what those of the C++ headers in tilewise/ do, which document every member and option at
   length; here is only what is different. No exception leaves them. All are safe to call from several
   threads at once.

   tilewise_options and tilewise_plan grow over time, at their end. Their first member says how large the
   caller's is, and zeros in all others are the defaults: `tilewise_options how = {.size = sizeof how};`. */

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

/* What a function returns. Unless it is TILEWISE_OK, nothing was written, and tilewise_last_error says why.
 */
typedef int32_t tilewise_status;
enum {
    TILEWISE_OK = 0,
    TILEWISE_INVALID_ARGUMENT = 1,
    TILEWISE_OUT_OF_MEMORY = 2,
    TILEWISE_INTERNAL_ERROR = 3
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
    TILEWISE_BIT = 10
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
enum { TILEWISE_EXACT = 0 };

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
} tilewise_plan;

/* What tilewise_attention would do for these arguments. */
TILEWISE_API tilewise_status tilewise_plan_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                                     const tilewise_tensor* v, const tilewise_tensor* out,
                                                     const tilewise_options* how, tilewise_plan* plan);

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

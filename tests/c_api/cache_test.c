/* The cache through the C API: each storage type has the bits of one call on the same keys and values, side
   by side; sequences are appended to, forked, truncated, forgotten and windowed; errors. */

#include <stdlib.h>

#include "check.h"
#include "random.h"

enum { HEADS = 4, KV_HEADS = 2, TOKENS = 150, DIM = 32, VALUE_DIM = 64, PAGE = 16 };

static float k_data[KV_HEADS * TOKENS * DIM];
static float v_data[KV_HEADS * TOKENS * VALUE_DIM];
static float q_data[2 * HEADS * DIM];
static tilewise_tensor k, v;

static tilewise_tensor tokens_of(const tilewise_tensor* x, int64_t first, int64_t count) {
    tilewise_tensor part;
    CHECK(tilewise_slice(x, TILEWISE_AXIS_TOKENS, first, count, &part) == TILEWISE_OK);
    return part;
}

/* Tokens first .. first + count - 1 of k and v. */
static tilewise_status append(tilewise_kv_cache* cache, int32_t sequence, int64_t first, int64_t count) {
    const tilewise_tensor keys = tokens_of(&k, first, count);
    const tilewise_tensor values = tokens_of(&v, first, count);
    return tilewise_kv_cache_append(cache, sequence, &keys, &values);
}

static tilewise_kv_cache_options options_of(tilewise_type k_type, tilewise_type v_type) {
    const tilewise_kv_cache_options how = {.size = sizeof how,
                                           .kv_heads = KV_HEADS,
                                           .head_dim = DIM,
                                           .value_dim = VALUE_DIM,
                                           .k_type = k_type,
                                           .v_type = v_type,
                                           .page_tokens = PAGE,
                                           .pages = 24,
                                           .max_sequences = 3};
    return how;
}

/* One query token per sequence, over all that the cache has of it. */
static tilewise_status attend(tilewise_kv_cache* cache, const int32_t* sequences, int64_t count, float* out) {
    const tilewise_tensor q = tilewise_bhsd(q_data, TILEWISE_F32, count, HEADS, 1, DIM);
    const tilewise_tensor to = tilewise_bhsd(out, TILEWISE_F32, count, HEADS, 1, VALUE_DIM);
    return tilewise_kv_cache_attention(cache, sequences, count, &q, &to, NULL);
}

/* The same for keys and values that are side by side. */
static void attend_to(const tilewise_tensor* keys, const tilewise_tensor* values, const float* q_rows,
                      float* out) {
    const tilewise_tensor q = tilewise_bhsd(q_rows, TILEWISE_F32, 1, HEADS, 1, DIM);
    const tilewise_tensor to = tilewise_bhsd(out, TILEWISE_F32, 1, HEADS, 1, VALUE_DIM);
    CHECK(tilewise_attention(&q, keys, values, &to, NULL) == TILEWISE_OK);
}

/* Rows side by side in another type, quantised row by row. Big enough for every type. */
static char stored_k[KV_HEADS * TOKENS * DIM * 4], stored_v[KV_HEADS * TOKENS * VALUE_DIM * 4];
static float scales_k[KV_HEADS * TOKENS], scales_v[KV_HEADS * TOKENS];

static tilewise_tensor quantised(const float* from, tilewise_type type, int64_t dim, char* to,
                                 float* scales) {
    const int64_t rows = KV_HEADS * TOKENS;
    tilewise_tensor view = tilewise_bhsd(to, type, 1, KV_HEADS, TOKENS, dim);
    for (int64_t row = 0; row < rows; ++row) {
        const float* const values = from + row * dim;
        tilewise_status status = TILEWISE_OK;
        switch (type) {
            case TILEWISE_Q8_0:
                status = tilewise_quantize_q8_0(values, dim, to + row * dim / 32 * 34);
                break;
            case TILEWISE_Q4_0:
                status = tilewise_quantize_q4_0(values, dim, to + row * dim / 32 * 18);
                break;
            case TILEWISE_I8:
                status =
                    tilewise_quantize_i8_per_token(values, 1, dim, (int8_t*)to + row * dim, scales + row);
                break;
            case TILEWISE_E4M3:
                status = tilewise_quantize_e4m3(values, dim, (uint8_t*)to + row * dim, scales + row);
                break;
            case TILEWISE_E5M2:
                status = tilewise_quantize_e5m2(values, dim, (uint8_t*)to + row * dim, scales + row);
                break;
            default:
                memcpy(to + row * dim * 4, values, (size_t)dim * 4);
                break;
        }
        CHECK(status == TILEWISE_OK);
    }
    if (type >= TILEWISE_I8) {
        CHECK(tilewise_with_scales(&view, scales, TILEWISE_SCALES_PER_TOKEN, &view) == TILEWISE_OK);
    }
    return view;
}

static void test_type(tilewise_type type) {
    const tilewise_kv_cache_options how = options_of(type, type);
    tilewise_kv_cache* cache = NULL;
    float paged[HEADS * VALUE_DIM], whole[HEADS * VALUE_DIM];
    int32_t sequence = -1;
    const tilewise_tensor keys = quantised(k_data, type, DIM, stored_k, scales_k);
    const tilewise_tensor values = quantised(v_data, type, VALUE_DIM, stored_v, scales_v);
    CHECK(tilewise_kv_cache_create(&how, &cache) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_add(cache, &sequence) == TILEWISE_OK && sequence == 0);
    for (int64_t first = 0, count = 1; first < TOKENS; first += count, count = count % 40 + 3) {
        if (count > TOKENS - first) { count = TOKENS - first; }
        CHECK(append(cache, sequence, first, count) == TILEWISE_OK);
    }
    CHECK(attend(cache, &sequence, 1, paged) == TILEWISE_OK);
    attend_to(&keys, &values, q_data, whole);
    CHECK(memcmp(paged, whole, sizeof whole) == 0);
    tilewise_kv_cache_destroy(cache);
}

static void test_sequences(void) {
    const tilewise_kv_cache_options how = options_of(TILEWISE_F32, TILEWISE_F32);
    tilewise_kv_cache* cache = NULL;
    float paged[2 * HEADS * VALUE_DIM], whole[2 * HEADS * VALUE_DIM];
    int32_t numbers[3] = {-1, -1, -1};
    int64_t length = -1, first = -1;
    CHECK(tilewise_kv_cache_create(&how, &cache) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_memory_bytes(cache) > 24 * PAGE * KV_HEADS * (DIM + VALUE_DIM) * sizeof(float));
    CHECK(tilewise_kv_cache_free_pages(cache) == 24);
    CHECK(tilewise_kv_cache_add(cache, &numbers[0]) == TILEWISE_OK);
    CHECK(append(cache, numbers[0], 0, 90) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_fork(cache, numbers[0], 70, &numbers[1]) == TILEWISE_OK && numbers[1] == 1);
    CHECK(tilewise_kv_cache_free_pages(cache) == 24 - 6); /* shared */
    CHECK(append(cache, numbers[1], 100, 20) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_truncate(cache, numbers[0], 50) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_length(cache, numbers[0], &length) == TILEWISE_OK && length == 50);
    CHECK(tilewise_kv_cache_length(cache, numbers[1], &length) == TILEWISE_OK && length == 90);
    CHECK(tilewise_kv_cache_first_position(cache, numbers[1], &first) == TILEWISE_OK && first == 0);
    CHECK(attend(cache, numbers, 2, paged) == TILEWISE_OK);
    {
        const tilewise_tensor keys = tokens_of(&k, 0, 50);
        const tilewise_tensor values = tokens_of(&v, 0, 50);
        attend_to(&keys, &values, q_data, whole);
    }
    {
        static float forked_k[KV_HEADS * 90 * DIM], forked_v[KV_HEADS * 90 * VALUE_DIM];
        for (int h = 0; h < KV_HEADS; ++h) {
            for (int t = 0; t < 90; ++t) {
                const int from = t < 70 ? t : t + 30;
                memcpy(forked_k + (h * 90 + t) * DIM, k_data + (h * TOKENS + from) * DIM,
                       DIM * sizeof(float));
                memcpy(forked_v + (h * 90 + t) * VALUE_DIM, v_data + (h * TOKENS + from) * VALUE_DIM,
                       VALUE_DIM * sizeof(float));
            }
        }
        const tilewise_tensor keys = tilewise_bhsd(forked_k, TILEWISE_F32, 1, KV_HEADS, 90, DIM);
        const tilewise_tensor values = tilewise_bhsd(forked_v, TILEWISE_F32, 1, KV_HEADS, 90, VALUE_DIM);
        attend_to(&keys, &values, q_data + HEADS * DIM, whole + HEADS * VALUE_DIM);
    }
    CHECK(memcmp(paged, whole, sizeof whole) == 0);
    CHECK(tilewise_kv_cache_remove(cache, numbers[0]) == TILEWISE_OK);
    CHECK_REFUSED(tilewise_kv_cache_length(cache, numbers[0], &length), "sequence: 0 given");
    CHECK(tilewise_kv_cache_add(cache, &numbers[2]) == TILEWISE_OK && numbers[2] == 0);
    tilewise_kv_cache_destroy(cache);
}

/* A plan says what a workspace must have; with it, the same bits. */
static void test_workspace(void) {
    const tilewise_kv_cache_options how = options_of(TILEWISE_F16, TILEWISE_Q8_0);
    const tilewise_tensor q = tilewise_bhsd(q_data, TILEWISE_F32, 1, HEADS, 1, DIM);
    float first[HEADS * VALUE_DIM], second[HEADS * VALUE_DIM];
    const tilewise_tensor out = tilewise_bhsd(second, TILEWISE_F32, 1, HEADS, 1, VALUE_DIM);
    tilewise_options options = {.size = sizeof options, .threads = 1};
    tilewise_plan plan = {.size = sizeof plan};
    tilewise_kv_cache* cache = NULL;
    int32_t sequence = -1;
    CHECK(tilewise_kv_cache_create(&how, &cache) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_add(cache, &sequence) == TILEWISE_OK);
    CHECK(append(cache, sequence, 0, TOKENS) == TILEWISE_OK);
    CHECK(attend(cache, &sequence, 1, first) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_plan_attention(cache, &sequence, 1, &q, &out, &options, &plan) == TILEWISE_OK);
    CHECK(plan.scratch_bytes > 0 && plan.visible_scores == HEADS * TOKENS);
    options.workspace_bytes = plan.scratch_bytes + 63;
    options.workspace = malloc(options.workspace_bytes);
    CHECK(tilewise_kv_cache_attention(cache, &sequence, 1, &q, &out, &options) == TILEWISE_OK);
    CHECK(memcmp(first, second, sizeof first) == 0);
    options.workspace_bytes = 1;
    CHECK_REFUSED(tilewise_kv_cache_attention(cache, &sequence, 1, &q, &out, &options), "workspace: ");
    free(options.workspace);
    options.key_position = 1;
    CHECK_REFUSED(tilewise_kv_cache_attention(cache, &sequence, 1, &q, &out, &options),
                  "the cache sets them");
    tilewise_kv_cache_destroy(cache);
}

static void test_window(void) {
    tilewise_kv_cache_options how = options_of(TILEWISE_F32, TILEWISE_F32);
    const tilewise_tensor q = tilewise_bhsd(q_data, TILEWISE_F32, 1, HEADS, 1, DIM);
    float paged[HEADS * VALUE_DIM], whole[HEADS * VALUE_DIM];
    const tilewise_tensor paged_out = tilewise_bhsd(paged, TILEWISE_F32, 1, HEADS, 1, VALUE_DIM);
    const tilewise_tensor whole_out = tilewise_bhsd(whole, TILEWISE_F32, 1, HEADS, 1, VALUE_DIM);
    const tilewise_options options = {.size = sizeof options,
                                      .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT,
                                      .has_window_left = 1,
                                      .window_left = 20};
    tilewise_kv_cache* cache = NULL;
    int32_t sequence = -1;
    int64_t first = -1;
    how.has_window = 1;
    how.window = 20;
    how.pages = 3;
    CHECK(tilewise_kv_cache_create(&how, &cache) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_add(cache, &sequence) == TILEWISE_OK);
    for (int64_t t = 0; t < TOKENS; ++t) { CHECK(append(cache, sequence, t, 1) == TILEWISE_OK); }
    CHECK(tilewise_kv_cache_first_position(cache, sequence, &first) == TILEWISE_OK && first == 128);
    CHECK(tilewise_kv_cache_attention(cache, &sequence, 1, &q, &paged_out, &options) == TILEWISE_OK);
    CHECK(tilewise_attention(&q, &k, &v, &whole_out, &options) == TILEWISE_OK);
    CHECK(memcmp(paged, whole, sizeof whole) == 0);
    tilewise_kv_cache_destroy(cache);
}

static void test_errors(void) {
    tilewise_kv_cache_options how = options_of(TILEWISE_F32, TILEWISE_I32);
    tilewise_kv_cache* cache = NULL;
    int32_t sequence = -1, other = 77;
    int64_t length = 77;
    float out[HEADS * VALUE_DIM];
    CHECK_REFUSED(tilewise_kv_cache_create(&how, &cache), "v_type: number 8 given");
    how.v_type = 256;
    CHECK_REFUSED(tilewise_kv_cache_create(&how, &cache), "v_type: number 256 given");
    how = options_of(TILEWISE_F32, TILEWISE_F32);
    how.size = sizeof how - 8;
    CHECK_REFUSED(tilewise_kv_cache_create(&how, &cache), "kv_cache_options: size is");
    how.size = sizeof how;
    how.reserved = 1;
    CHECK_REFUSED(tilewise_kv_cache_create(&how, &cache), "reserved is 1");
    how.reserved = 0;
    CHECK_REFUSED(tilewise_kv_cache_create(NULL, &cache), "kv_cache_options: null");
    CHECK_REFUSED(tilewise_kv_cache_create(&how, NULL), "cache: null");
    how.pages = (int64_t)1 << 31;
    how.page_tokens = (int64_t)1 << 30;
    CHECK(tilewise_kv_cache_create(&how, &cache) == TILEWISE_OUT_OF_MEMORY);
    CHECK(cache == NULL);
    how = options_of(TILEWISE_F32, TILEWISE_F32);
    how.max_sequences = 0; /* 1 */
    how.page_tokens = 0;   /* 128 */
    how.pages = 1;
    CHECK(tilewise_kv_cache_create(&how, &cache) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_add(cache, &sequence) == TILEWISE_OK);
    CHECK(tilewise_kv_cache_add(cache, &other) == TILEWISE_CACHE_FULL && other == 77);
    CHECK(strstr(tilewise_last_error(), "all of its 1 sequences") != NULL);
    CHECK(append(cache, sequence, 0, 128) == TILEWISE_OK);
    CHECK(append(cache, sequence, 128, 1) == TILEWISE_CACHE_FULL);
    CHECK(tilewise_kv_cache_length(cache, sequence, &length) == TILEWISE_OK && length == 128);
    CHECK_REFUSED(append(cache, 5, 0, 1), "sequence: 5 given");
    CHECK_REFUSED(tilewise_kv_cache_append(cache, 0, &v, &v), "k: head_dim is 64");
    CHECK_REFUSED(tilewise_kv_cache_append(cache, 0, NULL, &v), "k: null");
    CHECK_REFUSED(tilewise_kv_cache_fork(cache, 0, 129, &other), "holds positions 0 to 128");
    CHECK_REFUSED(tilewise_kv_cache_fork(cache, 0, 1, NULL), "forked: null");
    CHECK_REFUSED(tilewise_kv_cache_truncate(cache, 0, -1), "tokens: -1 given");
    CHECK_REFUSED(tilewise_kv_cache_remove(cache, -1), "sequence: -1 given");
    CHECK_REFUSED(tilewise_kv_cache_length(cache, 0, NULL), "tokens: null");
    CHECK_REFUSED(tilewise_kv_cache_first_position(NULL, 0, &length), "cache: null");
    CHECK_REFUSED(attend(NULL, &sequence, 1, out), "cache: null");
    CHECK_REFUSED(attend(cache, NULL, 1, out), "sequences: null");
    CHECK_REFUSED(attend(cache, &sequence, -1, out), "sequences: -1 elements");
    CHECK_REFUSED(attend(cache, &sequence, 0, NULL) == TILEWISE_OK ? attend(cache, &sequence, 1, NULL) : 0,
                  "out: null data");
    tilewise_kv_cache_destroy(cache);
    tilewise_kv_cache_destroy(NULL);
    CHECK(tilewise_kv_cache_free_pages(NULL) == 0 && tilewise_kv_cache_memory_bytes(NULL) == 0);
}

int main(void) {
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    k = tilewise_bhsd(k_data, TILEWISE_F32, 1, KV_HEADS, TOKENS, DIM);
    v = tilewise_bhsd(v_data, TILEWISE_F32, 1, KV_HEADS, TOKENS, VALUE_DIM);
    test_type(TILEWISE_F32);
    test_type(TILEWISE_Q8_0);
    test_type(TILEWISE_Q4_0);
    test_type(TILEWISE_I8);
    test_type(TILEWISE_E4M3);
    test_type(TILEWISE_E5M2);
    test_sequences();
    test_workspace();
    test_window();
    test_errors();
    return failures != 0;
}

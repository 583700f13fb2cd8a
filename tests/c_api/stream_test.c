/* Streams through the C API: pieces of any length have the bits of one call, also after a state was saved and
   restored; errors. */

#include <stdlib.h>

#include "check.h"
#include "random.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, QUERIES = 9, KEYS = 300, DIM = 24, VALUE_DIM = 16 };

static float q_data[BATCH * HEADS * QUERIES * DIM];
static float k_data[BATCH * KV_HEADS * KEYS * DIM];
static float v_data[BATCH * KV_HEADS * KEYS * VALUE_DIM];
static tilewise_tensor q, k, v;

typedef struct results {
    float out[BATCH * HEADS * QUERIES * VALUE_DIM];
    float lse[BATCH * HEADS * QUERIES];
    float row_maximum[BATCH * HEADS * QUERIES];
} results;
static results whole, streamed;

static tilewise_tensor out_of(results* r) {
    return tilewise_bhsd(r->out, TILEWISE_F32, BATCH, HEADS, QUERIES, VALUE_DIM);
}
static tilewise_tensor rows_of(float* values) {
    return tilewise_bhsd(values, TILEWISE_F32, BATCH, HEADS, QUERIES, 1);
}

/* Makes the scores of later keys larger. */
static void tilt(void* context, const tilewise_score_tile* tile) {
    for (int64_t i = 0; i < tile->queries; ++i) {
        for (int64_t j = 0; j < tile->keys; ++j) {
            tile->scores[i * tile->query_stride + j * tile->key_stride] +=
                *(const float*)context * (float)(tile->first_key + j);
        }
    }
}

static const float sinks[HEADS] = {0.0f, 1.0f, -1.0f, 2.0f};
static float slope = 0.0078125f;

static tilewise_options options_used(void) {
    const tilewise_options how = {.size = sizeof how,
                                  .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT,
                                  .sinks = sinks,
                                  .sink_count = HEADS,
                                  .score_function = tilt,
                                  .score_context = &slope};
    return how;
}

static tilewise_attention_stream* make(void) {
    const tilewise_stream_sizes sizes = {.size = sizeof sizes,
                                         .kv_heads = KV_HEADS,
                                         .value_dim = VALUE_DIM,
                                         .has_total_keys = 1,
                                         .total_keys = KEYS};
    const tilewise_options how = options_used(); /* need not outlive the call */
    tilewise_attention_stream* stream = NULL;
    CHECK(tilewise_stream_create(&q, &sizes, &how, &stream) == TILEWISE_OK);
    return stream;
}

static void add(tilewise_attention_stream* stream, int64_t first, int64_t count) {
    tilewise_tensor keys, values;
    CHECK(tilewise_slice(&k, TILEWISE_AXIS_TOKENS, first, count, &keys) == TILEWISE_OK);
    CHECK(tilewise_slice(&v, TILEWISE_AXIS_TOKENS, first, count, &values) == TILEWISE_OK);
    CHECK(tilewise_stream_add(stream, &keys, &values) == TILEWISE_OK);
}

static void finish(tilewise_attention_stream* stream) {
    const tilewise_tensor out = out_of(&streamed);
    const tilewise_tensor lse = rows_of(streamed.lse);
    const tilewise_tensor row_maximum = rows_of(streamed.row_maximum);
    memset(&streamed, 0, sizeof streamed);
    CHECK(tilewise_stream_finish(stream, &out, &lse, &row_maximum) == TILEWISE_OK);
    CHECK(memcmp(&streamed, &whole, sizeof whole) == 0);
}

static void test_pieces(int64_t length) {
    tilewise_attention_stream* const stream = make();
    int64_t keys = -1;
    for (int64_t first = 0; first < KEYS; first += length) {
        add(stream, first, length < KEYS - first ? length : KEYS - first);
    }
    CHECK(tilewise_stream_keys_added(stream, &keys) == TILEWISE_OK && keys == KEYS);
    finish(stream);
    tilewise_stream_destroy(stream);
}

static void test_saved_state(void) {
    tilewise_attention_stream* const first = make();
    tilewise_attention_stream* const second = make();
    size_t bytes = 0;
    char* state = NULL;
    add(first, 0, 170);
    CHECK(tilewise_stream_saved_bytes(first, &bytes) == TILEWISE_OK && bytes > 112);
    state = malloc(bytes);
    CHECK_REFUSED(tilewise_stream_save(first, state, bytes - 1), "to: ");
    CHECK(tilewise_stream_save(first, state, bytes) == TILEWISE_OK);
    tilewise_stream_destroy(first);
    add(second, 100, 3); /* forgotten */
    ++state[bytes - 1];
    CHECK_REFUSED(tilewise_stream_restore(second, state, bytes), "checksum");
    --state[bytes - 1];
    CHECK_REFUSED(tilewise_stream_restore(second, state, bytes - 1), "state: ");
    CHECK(tilewise_stream_restore(second, state, bytes) == TILEWISE_OK);
    free(state);
    add(second, 170, KEYS - 170);
    finish(second);
    tilewise_stream_destroy(second);
}

static void test_errors(void) {
    const tilewise_stream_sizes none = {.size = 8};
    const tilewise_stream_sizes sizes = {.size = sizeof sizes, .kv_heads = KV_HEADS, .value_dim = VALUE_DIM};
    const tilewise_tensor out = out_of(&streamed);
    tilewise_options how = options_used();
    tilewise_attention_stream* stream = NULL;
    int64_t keys = 0;
    size_t bytes = 0;
    CHECK_REFUSED(tilewise_stream_create(&q, &sizes, &how, &stream), "total_keys: none given");
    how.lse = rows_of(streamed.lse);
    CHECK_REFUSED(tilewise_stream_create(&q, &sizes, &how, &stream), "lse: given");
    CHECK_REFUSED(tilewise_stream_create(&q, &none, NULL, &stream), "stream_sizes: size is 8");
    CHECK_REFUSED(tilewise_stream_create(&q, NULL, NULL, &stream), "stream_sizes: null");
    CHECK_REFUSED(tilewise_stream_create(NULL, &sizes, NULL, &stream), "q: null");
    CHECK_REFUSED(tilewise_stream_create(&q, &sizes, NULL, NULL), "stream: null");
    how.size = 1;
    CHECK_REFUSED(tilewise_stream_create(&q, &sizes, &how, &stream), "options: size is 1");
    CHECK(stream == NULL);
    stream = make();
    CHECK_REFUSED(tilewise_stream_add(stream, &v, &v), "k: head_dim is 16");
    CHECK_REFUSED(tilewise_stream_add(stream, &k, NULL), "v: null");
    CHECK_REFUSED(tilewise_stream_add(NULL, &k, &v), "stream: null");
    CHECK_REFUSED(tilewise_stream_finish(stream, &out, NULL, NULL), "total_keys: 300 given, 0 keys added");
    CHECK_REFUSED(tilewise_stream_finish(stream, NULL, NULL, NULL), "out: null");
    CHECK_REFUSED(tilewise_stream_keys_added(stream, NULL), "keys: null");
    CHECK_REFUSED(tilewise_stream_saved_bytes(stream, NULL), "bytes: null");
    CHECK_REFUSED(tilewise_stream_save(stream, NULL, 0), "to: null");
    CHECK_REFUSED(tilewise_stream_restore(stream, NULL, 0), "from: null");
    add(stream, 0, KEYS);
    CHECK(tilewise_stream_finish(stream, &out, NULL, NULL) == TILEWISE_OK);
    CHECK(memcmp(streamed.out, whole.out, sizeof whole.out) == 0);
    CHECK(tilewise_stream_add(stream, &k, &v) == TILEWISE_STREAM_FINISHED);
    CHECK(strstr(tilewise_last_error(), "add called, the stream has been finished") != NULL);
    CHECK(tilewise_stream_keys_added(stream, &keys) == TILEWISE_STREAM_FINISHED);
    CHECK(tilewise_stream_saved_bytes(stream, &bytes) == TILEWISE_STREAM_FINISHED);
    tilewise_stream_destroy(stream);
    tilewise_stream_destroy(NULL);
}

int main(void) {
    tilewise_options how = options_used();
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    q = tilewise_bhsd(q_data, TILEWISE_F32, BATCH, HEADS, QUERIES, DIM);
    k = tilewise_bhsd(k_data, TILEWISE_F32, BATCH, KV_HEADS, KEYS, DIM);
    v = tilewise_bhsd(v_data, TILEWISE_F32, BATCH, KV_HEADS, KEYS, VALUE_DIM);
    how.lse = rows_of(whole.lse);
    how.row_maximum = rows_of(whole.row_maximum);
    {
        const tilewise_tensor out = out_of(&whole);
        CHECK(tilewise_attention(&q, &k, &v, &out, &how) == TILEWISE_OK);
    }
    test_pieces(1);
    test_pieces(77);
    test_pieces(128);
    test_pieces(KEYS);
    test_saved_state();
    test_errors();
    return failures != 0;
}

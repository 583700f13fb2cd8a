/* Attention through the C API, compiled as C99: each option reaches the library, and the bits are those of
   the naive formulation. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "random.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, QUERIES = 40, KEYS = 150, DIM = 24, VALUE_DIM = 16 };

static float q_data[BATCH * HEADS * QUERIES * DIM];
static float k_data[BATCH * KV_HEADS * KEYS * DIM];
static float v_data[BATCH * KV_HEADS * KEYS * VALUE_DIM];

/* What one call writes. */
typedef struct results {
    float out[BATCH * HEADS * QUERIES * VALUE_DIM];
    float lse[BATCH * HEADS * QUERIES];
    float row_maximum[BATCH * HEADS * QUERIES];
    float entropy[BATCH * HEADS * QUERIES];
    float key_weights[BATCH * HEADS * KEYS];
    float weights[BATCH * HEADS * 2 * KEYS];
} results;

static results tiled, naive, plain;

static tilewise_tensor q, k, v;

/* Calls either formulation, and asks for all results. */
static void run(int naively, tilewise_options how, results* into) {
    static const int64_t rows[2] = {3, QUERIES - 1};
    const int64_t sequences = how.start_count > 0 ? how.start_count - 1 : BATCH;
    const int64_t batch = how.start_count > 0 ? 1 : BATCH;
    const tilewise_tensor out = tilewise_bhsd(into->out, TILEWISE_F32, batch, HEADS, QUERIES, VALUE_DIM);
    tilewise_tensor q_used = q, k_used = k, v_used = v;
    memset(into, 0, sizeof *into);
    if (how.start_count > 0) {
        CHECK(tilewise_slice(&q, TILEWISE_AXIS_BATCH, 0, 1, &q_used) == TILEWISE_OK);
        CHECK(tilewise_slice(&k, TILEWISE_AXIS_BATCH, 0, 1, &k_used) == TILEWISE_OK);
        CHECK(tilewise_slice(&v, TILEWISE_AXIS_BATCH, 0, 1, &v_used) == TILEWISE_OK);
    }
    how.size = sizeof how;
    how.lse = tilewise_bhsd(into->lse, TILEWISE_F32, batch, HEADS, QUERIES, 1);
    if (sequences == BATCH) {
        how.row_maximum = tilewise_bhsd(into->row_maximum, TILEWISE_F32, batch, HEADS, QUERIES, 1);
        how.entropy = tilewise_bhsd(into->entropy, TILEWISE_F32, batch, HEADS, QUERIES, 1);
        how.key_weights = tilewise_bhsd(into->key_weights, TILEWISE_F32, batch, HEADS, 1, KEYS);
        how.weights = tilewise_bhsd(into->weights, TILEWISE_F32, batch, HEADS, 2, KEYS);
        how.weight_rows = rows;
        how.weight_row_count = 2;
    }
    CHECK((naively ? tilewise_reference_attention : tilewise_attention)(&q_used, &k_used, &v_used, &out,
                                                                        &how) == TILEWISE_OK);
}

/* The same bits as the naive formulation, and others than without the option: it arrived. */
static void check_option(const char* name, tilewise_options how) {
    run(0, how, &tiled);
    run(1, how, &naive);
    if (memcmp(&tiled, &naive, sizeof tiled) != 0) {
        printf("%s: not the bits of the naive formulation\n", name);
        ++failures;
    }
    if (memcmp(&tiled, &plain, sizeof tiled) == 0) {
        printf("%s: no effect\n", name);
        ++failures;
    }
}

static void test_masks(void) {
    const int64_t documents[] = {0, 100, 130, KEYS};
    const int64_t lengths[BATCH] = {KEYS - 50, 3};
    const int64_t query_starts[] = {0, 10, 30, QUERIES};
    const int64_t key_starts[] = {0, 50, 60, KEYS};
    static int32_t first[QUERIES], last[QUERIES];
    static uint8_t visible[QUERIES * KEYS], blocks[4 * 5];
    for (int i = 0; i < QUERIES; ++i) {
        first[i] = i;
        last[i] = KEYS - 2 * i;
    }
    for (int i = 0; i < QUERIES * KEYS; ++i) { visible[i] = i % 3 != 0; }
    for (int i = 0; i < 4 * 5; ++i) { blocks[i] = i % 2 == 0; }
    check_option("causal", (tilewise_options){.causal = TILEWISE_CAUSAL_BOTTOM_RIGHT});
    check_option("top left", (tilewise_options){.causal = TILEWISE_CAUSAL_TOP_LEFT});
    check_option("query position",
                 (tilewise_options){
                     .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT, .has_query_position = 1, .query_position = 70});
    check_option("key position",
                 (tilewise_options){.window_left = 20, .has_window_left = 1, .key_position = 77});
    check_option("window to the right",
                 (tilewise_options){.window_right = 0, .has_window_right = 1, .prefix = 9});
    check_option("attention chunk", (tilewise_options){.attention_chunk = 32});
    check_option("documents", (tilewise_options){.documents = documents, .document_count = 4});
    check_option("key lengths", (tilewise_options){.key_lengths = lengths, .key_length_count = BATCH});
    check_option("packed", (tilewise_options){.query_starts = query_starts,
                                              .key_starts = key_starts,
                                              .start_count = 4,
                                              .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT});
    check_option("ranges",
                 (tilewise_options){.first_keys = tilewise_bhsd(first, TILEWISE_I32, 1, 1, QUERIES, 1),
                                    .last_keys = tilewise_bhsd(last, TILEWISE_I32, 1, 1, QUERIES, 1)});
    check_option("mask",
                 (tilewise_options){.mask = tilewise_bhsd(visible, TILEWISE_BOOLEAN, 1, 1, QUERIES, KEYS)});
    check_option("blocks", (tilewise_options){.blocks = tilewise_bhsd(blocks, TILEWISE_BOOLEAN, 1, 1, 4, 5),
                                              .query_block = 10,
                                              .key_block = 30});
}

/* Scores grow with the key. */
static void tilt(void* context, const tilewise_score_tile* tile) {
    const float slope = *(const float*)context;
    for (int64_t i = 0; i < tile->queries; ++i) {
        for (int64_t j = 0; j < tile->keys; ++j) {
            tile->scores[i * tile->query_stride + j * tile->key_stride] +=
                slope * (float)(tile->first_key + j);
        }
    }
}

static void test_scores(void) {
    static float bias[HEADS * QUERIES];
    const float slopes[HEADS] = {0.5f, 0.25f, 0.125f, 0.0625f};
    const float sinks[HEADS] = {0.0f, 1.0f, -1.0f, 2.0f};
    float slope = 0.015625f;
    fill(bias, HEADS * QUERIES, 9);
    bias[7] = -INFINITY;
    check_option("scale", (tilewise_options){.has_scale = 1, .scale = 0.5f});
    check_option("soft cap", (tilewise_options){.soft_cap = 2.0f});
    check_option("bias", (tilewise_options){.bias = {.data = bias,
                                                     .extents = {1, HEADS, QUERIES, KEYS},
                                                     .strides = {0, QUERIES, 1, 0}}});
    check_option("ALiBi", (tilewise_options){.alibi_slopes = slopes, .alibi_slope_count = HEADS});
    check_option("sinks", (tilewise_options){.sinks = sinks, .sink_count = HEADS});
    check_option("score function", (tilewise_options){.score_function = tilt, .score_context = &slope});
}

/* A host's threads: here one after the other. */
static void run_in_turn(void* context, int threads, void (*body)(void*, size_t), void* body_context) {
    *(int*)context += threads;
    for (int n = 0; n < threads; ++n) { body(body_context, (size_t)n); }
}

static void test_resources(void) {
    int threads_asked = 0;
    tilewise_plan plan = {.size = sizeof plan};
    tilewise_tensor out = tilewise_bhsd(naive.out, TILEWISE_F32, BATCH, HEADS, QUERIES, VALUE_DIM);
    tilewise_options how = {.size = sizeof how, .threads = 1};
    CHECK(tilewise_plan_attention(&q, &k, &v, &out, &how, &plan) == TILEWISE_OK);
    CHECK(plan.threads == 1);
    CHECK(plan.tasks > 0);
    CHECK(plan.scratch_bytes == plan.scratch_bytes_per_thread + plan.shared_scratch_bytes);
    CHECK(plan.visible_scores == (double)BATCH * HEADS * QUERIES * KEYS);
    how.workspace = malloc(2 * plan.scratch_bytes);
    how.workspace_bytes = 1;
    CHECK_REFUSED(tilewise_attention(&q, &k, &v, &out, &how), "workspace: ");
    how.workspace_bytes = 2 * plan.scratch_bytes;
    how.scratch_budget = 1;
    CHECK(tilewise_attention(&q, &k, &v, &out, &how) == TILEWISE_OK);
    CHECK(memcmp(naive.out, plain.out, sizeof plain.out) == 0);
    free(how.workspace);
    how = (tilewise_options){.size = sizeof how,
                             .threads = 3,
                             .parallel_for = run_in_turn,
                             .parallel_context = &threads_asked,
                             .attention_chunk = 1000000000};
    CHECK(tilewise_attention(&q, &k, &v, &out, &how) == TILEWISE_OK);
    CHECK(memcmp(naive.out, plain.out, sizeof plain.out) == 0);
    CHECK(threads_asked >= 0);
    how.threads = 0;
    CHECK_REFUSED(tilewise_attention(&q, &k, &v, &out, &how), "threads: 0 given");
}

/* Keys and values in pages of the caller's, in any order, and sequences that begin at different positions. */
static void test_pages(void) {
    enum { PAGE = 32, PAGES = 6 }; /* of a sequence */
    static float k_pool[2 * PAGES * KV_HEADS * PAGE * DIM], v_pool[2 * PAGES * KV_HEADS * PAGE * VALUE_DIM];
    static float paged[BATCH * HEADS * QUERIES * VALUE_DIM], whole[BATCH * HEADS * QUERIES * VALUE_DIM];
    static int32_t table[BATCH * PAGES];
    const int64_t lengths[BATCH] = {KEYS, 61};
    const int64_t positions[BATCH] = {0, 200};
    const tilewise_tensor keys = tilewise_bhsd(k_pool, TILEWISE_F32, 2 * PAGES, KV_HEADS, PAGE, DIM);
    const tilewise_tensor values = tilewise_bhsd(v_pool, TILEWISE_F32, 2 * PAGES, KV_HEADS, PAGE, VALUE_DIM);
    const tilewise_tensor paged_out = tilewise_bhsd(paged, TILEWISE_F32, BATCH, HEADS, QUERIES, VALUE_DIM);
    const tilewise_tensor whole_out = tilewise_bhsd(whole, TILEWISE_F32, BATCH, HEADS, QUERIES, VALUE_DIM);
    tilewise_options how = {.size = sizeof how,
                            .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT,
                            .key_lengths = lengths,
                            .key_length_count = BATCH,
                            .key_positions = positions,
                            .key_position_count = BATCH,
                            .has_window_left = 1,
                            .window_left = 50};
    for (int b = 0; b < BATCH; ++b) {
        for (int p = 0; p < PAGES; ++p) {
            const int page = (5 * p + 3) % PAGES * 2 + b;
            table[b * PAGES + p] = page;
            for (int h = 0; h < KV_HEADS; ++h) {
                for (int t = 0; t < PAGE && p * PAGE + t < KEYS; ++t) {
                    const int from = (b * KV_HEADS + h) * KEYS + p * PAGE + t;
                    const int to = (page * KV_HEADS + h) * PAGE + t;
                    memcpy(k_pool + to * DIM, k_data + from * DIM, DIM * sizeof(float));
                    memcpy(v_pool + to * VALUE_DIM, v_data + from * VALUE_DIM, VALUE_DIM * sizeof(float));
                }
            }
        }
    }
    CHECK(tilewise_reference_attention(&q, &k, &v, &whole_out, &how) == TILEWISE_OK);
    how.block_table = tilewise_bhsd(table, TILEWISE_I32, BATCH, 1, 1, PAGES);
    CHECK(tilewise_attention(&q, &keys, &values, &paged_out, &how) == TILEWISE_OK);
    CHECK(memcmp(paged, whole, sizeof whole) == 0);
    table[1] = 2 * PAGES;
    CHECK_REFUSED(tilewise_attention(&q, &keys, &values, &paged_out, &how), "block_table: page 12 given");
    how.key_position_count = 1;
    table[1] = 0;
    CHECK_REFUSED(tilewise_attention(&q, &keys, &values, &paged_out, &how), "key_positions: 1 values given");
    how.key_positions = NULL;
    CHECK_REFUSED(tilewise_attention(&q, &keys, &values, &paged_out, &how), "key_positions: null");
}

static void test_all_isas(void) {
    tilewise_isa isas[8];
    const int32_t count = tilewise_available_isas(isas, 8);
    CHECK(count >= 1 && count <= 8);
    for (int32_t n = 0; n < count; ++n) {
        tilewise_isa active = -1;
        tilewise_isa named = -1;
        CHECK(tilewise_force_isa(isas[n]) == TILEWISE_OK);
        CHECK(tilewise_active_isa(&active) == TILEWISE_OK && active == isas[n]);
        CHECK(tilewise_isa_from_name(tilewise_isa_name(active), &named) == TILEWISE_OK && named == active);
        run(0, (tilewise_options){.scratch_budget = 0}, &tiled);
        CHECK(memcmp(&tiled, &plain, sizeof plain) == 0);
    }
    tilewise_unforce_isa();
}

#ifdef TILEWISE_TESTS_HAVE_F64
static void test_f64(void) {
    enum { ROWS = 7, ALL = 90, SIZE = 5 };
    static double queries[ROWS * SIZE], keys[ALL * SIZE], values[ALL * SIZE];
    static double out[3][ROWS * SIZE], lse[3][ROWS];
    tilewise_tensor q64 = tilewise_bhsd(queries, TILEWISE_F64, 1, 1, ROWS, SIZE);
    tilewise_tensor k64 = tilewise_bhsd(keys, TILEWISE_F64, 1, 1, ALL, SIZE);
    tilewise_tensor v64 = tilewise_bhsd(values, TILEWISE_F64, 1, 1, ALL, SIZE);
    tilewise_options how = {.size = sizeof how, .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT};
    for (int n = 0; n < ROWS * SIZE; ++n) { queries[n] = q_data[n] + 1e-9 * k_data[n]; }
    for (int n = 0; n < ALL * SIZE; ++n) { keys[n] = k_data[n] + 1e-9 * v_data[n]; }
    for (int n = 0; n < ALL * SIZE; ++n) { values[n] = v_data[n] + 1e-9 * k_data[n]; }
    for (int n = 0; n < 3; ++n) {
        tilewise_tensor to = tilewise_bhsd(out[n], TILEWISE_F64, 1, 1, ROWS, SIZE);
        how.lse = tilewise_bhsd(lse[n], TILEWISE_F64, 1, 1, ROWS, 1);
        how.has_scale_f64 = n == 2;
        how.scale_f64 = 1 / sqrt(SIZE) + 1e-12;
        CHECK((n == 1 ? tilewise_reference_attention : tilewise_attention)(&q64, &k64, &v64, &to, &how) ==
              TILEWISE_OK);
    }
    CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0 && memcmp(lse[0], lse[1], sizeof lse[0]) == 0);
    CHECK(memcmp(out[0], out[2], sizeof out[0]) != 0 && fabs(out[0][0] - out[2][0]) < 1e-10);
    tilewise_tensor to = tilewise_bhsd(out[0], TILEWISE_F64, 1, 1, ROWS, SIZE);
    CHECK_REFUSED(tilewise_attention(&q64, &k, &v64, &to, &how),
                  "k: element type f32 given, it must be f64");
}
#endif

int main(void) {
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    q = tilewise_bhsd(q_data, TILEWISE_F32, BATCH, HEADS, QUERIES, DIM);
    k = tilewise_bhsd(k_data, TILEWISE_F32, BATCH, KV_HEADS, KEYS, DIM);
    v = tilewise_bhsd(v_data, TILEWISE_F32, BATCH, KV_HEADS, KEYS, VALUE_DIM);
    run(1, (tilewise_options){.threads = 0}, &plain);
    test_masks();
    test_scores();
    test_resources();
    test_pages();
#ifdef TILEWISE_TESTS_HAVE_F64
    test_f64();
#endif
    test_all_isas();
    return failures != 0;
}

/* Decoding in C, inside a program that brings its own memory: one layer of attention with grouped heads and
   rotary positions, over a cache that quantises. Everything is allocated before the first token; from then on
   the library allocates nothing, takes no lock and makes no system call.

   The "model" is a toy: a token's queries, keys and values are made up from its number, and the next token is
   the one whose numbers at that place resemble the output most. But its answer is checked: all tokens at
   once, through the naive formulation, must say the same to the last bit. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewise.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, VOCABULARY = 50, PROMPT = 200, TOKENS = 300, CHUNK = 64 };

#define TRY(call)                                                      \
    do {                                                               \
        if ((call) != TILEWISE_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #call, tilewise_last_error()); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

/* Numbers from -1 to 1 that depend on a token, and on what they are for. */
static void make_up(float* numbers, int count, uint32_t token, uint32_t use) {
    uint32_t state = token * 2654435761u + use;
    for (int i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* [tokens][heads][DIM], as a projection would leave them; views of it take heads first. */
static float q[TOKENS * HEADS * DIM], k[TOKENS * KV_HEADS * DIM], v[TOKENS * KV_HEADS * DIM];
static float out[TOKENS * HEADS * DIM], all_out[TOKENS * HEADS * DIM];
static int tokens[TOKENS];

static tilewise_tensor view(float* data, int first, int count, int heads) {
    return tilewise_bshd(data + first * heads * DIM, TILEWISE_F32, 1, count, heads, DIM);
}

/* Queries, keys and values of some tokens, turned by their positions. */
static void project(int first, int count) {
    tilewise_tensor queries = view(q, first, count, HEADS), keys = view(k, first, count, KV_HEADS);
    const tilewise_rotary_options rotary = {.size = sizeof rotary, .first_position = first};
    for (int t = first; t < first + count; ++t) {
        make_up(q + t * HEADS * DIM, HEADS * DIM, (uint32_t)tokens[t], 1);
        make_up(k + t * KV_HEADS * DIM, KV_HEADS * DIM, (uint32_t)tokens[t], 2);
        make_up(v + t * KV_HEADS * DIM, KV_HEADS * DIM, (uint32_t)tokens[t], 3);
    }
    TRY(tilewise_rotary_embedding(&queries, &rotary));
    TRY(tilewise_rotary_embedding(&keys, &rotary));
}

/* The token whose numbers at place t + 1 resemble the output of token t most. */
static int next_token(int t) {
    static float numbers[HEADS * DIM];
    int best = 0;
    float largest = -1e30f;
    for (int token = 0; token < VOCABULARY; ++token) {
        float sum = 0.0f;
        make_up(numbers, HEADS * DIM, (uint32_t)token, (uint32_t)(t + 1) * 1000);
        for (int i = 0; i < HEADS * DIM; ++i) { sum += out[t * HEADS * DIM + i] * numbers[i]; }
        if (sum > largest) {
            largest = sum;
            best = token;
        }
    }
    return best;
}

/* Appends tokens first .. first + count - 1, and attends from them to all so far. */
static void step(tilewise_kv_cache* cache, int32_t sequence, int first, int count,
                 const tilewise_options* how) {
    tilewise_tensor queries = view(q, first, count, HEADS), to = view(out, first, count, HEADS);
    tilewise_tensor keys = view(k, first, count, KV_HEADS), values = view(v, first, count, KV_HEADS);
    project(first, count);
    TRY(tilewise_kv_cache_append(cache, sequence, &keys, &values));
    TRY(tilewise_kv_cache_attention(cache, &sequence, 1, &queries, &to, how));
}

/* All tokens in one call, with the naive formulation; keys and values quantised as the cache does it. */
static void check(void) {
    static char k_blocks[KV_HEADS * TOKENS * DIM / 32 * 34], v_blocks[KV_HEADS * TOKENS * DIM / 32 * 34];
    tilewise_tensor queries = view(q, 0, TOKENS, HEADS), to = view(all_out, 0, TOKENS, HEADS);
    tilewise_tensor keys = tilewise_bshd(k_blocks, TILEWISE_Q8_0, 1, TOKENS, KV_HEADS, DIM);
    tilewise_tensor values = tilewise_bshd(v_blocks, TILEWISE_Q8_0, 1, TOKENS, KV_HEADS, DIM);
    const tilewise_options how = {.size = sizeof how, .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT};
    TRY(tilewise_quantize_q8_0(k, TOKENS * KV_HEADS * DIM, k_blocks));
    TRY(tilewise_quantize_q8_0(v, TOKENS * KV_HEADS * DIM, v_blocks));
    TRY(tilewise_reference_attention(&queries, &keys, &values, &to, &how));
    printf("the naive formulation has %s\n",
           memcmp(out, all_out, sizeof out) == 0 ? "the same bits" : "OTHER BITS");
}

int main(void) {
    const tilewise_kv_cache_options holds = {.size = sizeof holds,
                                             .kv_heads = KV_HEADS,
                                             .head_dim = DIM,
                                             .value_dim = DIM,
                                             .k_type = TILEWISE_Q8_0,
                                             .v_type = TILEWISE_Q8_0,
                                             .pages = (TOKENS + 127) / 128};
    tilewise_options how = {.size = sizeof how, .causal = TILEWISE_CAUSAL_BOTTOM_RIGHT, .threads = 1};
    tilewise_plan plan = {.size = sizeof plan};
    tilewise_tensor queries = view(q, 0, CHUNK, HEADS), to = view(out, 0, CHUNK, HEADS);
    tilewise_kv_cache* cache = NULL;
    int32_t sequence = 0;
    TRY(tilewise_kv_cache_create(&holds, &cache));
    TRY(tilewise_kv_cache_add(cache, &sequence));
    /* With one thread, no call with at most CHUNK queries needs more than a whole chunk does. */
    TRY(tilewise_kv_cache_plan_attention(cache, &sequence, 1, &queries, &to, &how, &plan));
    how.workspace_bytes = plan.scratch_bytes + 63;
    how.workspace = malloc(how.workspace_bytes);
    if (how.workspace == NULL) { return 1; }

    for (int t = 0; t < PROMPT; ++t) { tokens[t] = (t * t + 3 * t) % VOCABULARY; }
    for (int first = 0; first < PROMPT; first += CHUNK) {
        step(cache, sequence, first, first + CHUNK <= PROMPT ? CHUNK : PROMPT - first, &how);
    }
    for (int t = PROMPT; t < TOKENS; ++t) {
        tokens[t] = next_token(t - 1);
        step(cache, sequence, t, 1, &how);
        if (t < PROMPT + 12) { printf("%d ", tokens[t]); }
    }
    printf("...\n%d tokens in a cache of %lu KiB, with a workspace of %lu KiB\n", TOKENS,
           (unsigned long)(tilewise_kv_cache_memory_bytes(cache) / 1024),
           (unsigned long)(how.workspace_bytes / 1024));
    check();
    tilewise_kv_cache_destroy(cache);
    free(how.workspace);
    return 0;
}

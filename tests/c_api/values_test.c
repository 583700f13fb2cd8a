/* The C API's own structures: versions by size, null pointers, numbers that name nothing, views, quantised
   values, and messages. */

#include <stddef.h>
#include <stdint.h>

#include "check.h"

/* tilewise_options of a later version. */
typedef struct later_options {
    tilewise_options known;
    int64_t unknown;
} later_options;

static float q[4 * 8], k[4 * 8], v[4 * 8], out[4 * 8];
static tilewise_tensor q_view, k_view, v_view, out_view;

static tilewise_status attend(const void* how) {
    return tilewise_attention(&q_view, &k_view, &v_view, &out_view, (const tilewise_options*)how);
}

static void test_sizes(void) {
    later_options later = {.known = {.size = sizeof later}};
    struct {
        tilewise_plan known;
        int64_t unknown;
    } plan = {.known = {.size = sizeof plan}, .unknown = 77};
    /* The first version ended with parallel_context. */
    const size_t least = offsetof(tilewise_options, parallel_context) + sizeof(void*);
    tilewise_options short_options = {.size = least};
    short_options.key_position_count = 99; /* is not there */
    CHECK(attend(&short_options) == TILEWISE_OK);
    short_options.size = least - 1;
    CHECK(attend(NULL) == TILEWISE_OK);
    CHECK(attend(&later) == TILEWISE_OK);
    later.unknown = (int64_t)1 << 60;
    CHECK_REFUSED(attend(&later), "later version");
    CHECK_REFUSED(attend(&short_options), "options: size is");
    short_options.size = 0;
    CHECK_REFUSED(attend(&short_options), "options: size is 0, it must be sizeof(tilewise_options)");
    short_options.size = SIZE_MAX; /* as memory that was never set may have it: it is not followed */
    CHECK_REFUSED(attend(&short_options), "options: size is");
    CHECK(tilewise_plan_attention(&q_view, &k_view, &v_view, &out_view, NULL, &plan.known) == TILEWISE_OK);
    CHECK(plan.unknown == 77);
    CHECK(plan.known.size == sizeof plan);
    CHECK(plan.known.flops == 2.0 * 16 * 16);
    CHECK(plan.known.arithmetic == TILEWISE_EXACT && plan.known.reserved == 0);
    /* An older plan ends sooner. */
    plan.known.flops = 0;
    plan.known.size = offsetof(tilewise_plan, flops);
    CHECK(tilewise_plan_attention(&q_view, &k_view, &v_view, &out_view, NULL, &plan.known) == TILEWISE_OK);
    CHECK(plan.known.flops == 0 && plan.known.visible_scores == 16);
}

static void test_wrong_values(void) {
    tilewise_options how = {.size = sizeof how, .causal = 256};
    tilewise_tensor wrong = q_view;
    CHECK_REFUSED(attend(&how), "causal: number 256 given");
    how.causal = 0;
    how.arithmetic = 2;
    CHECK_REFUSED(attend(&how), "arithmetic: number 2 given");
    how.arithmetic = TILEWISE_FASTEST;
    CHECK(attend(&how) == TILEWISE_OK);
    how.arithmetic = 0;
    how.sink_count = 3;
    CHECK_REFUSED(attend(&how), "sinks: null pointer");
    how.sink_count = -1;
    CHECK_REFUSED(attend(&how), "sinks: -1 elements");
    how.sink_count = 0;
    how.reserved = 1;
    CHECK_REFUSED(attend(&how), "options: reserved is 1");
    CHECK_REFUSED(tilewise_attention(NULL, &k_view, &v_view, &out_view, NULL), "q: null pointer given");
    CHECK_REFUSED(tilewise_plan_attention(&q_view, &k_view, &v_view, &out_view, NULL, NULL), "plan: null");
    wrong.type = 256;
    CHECK_REFUSED(tilewise_attention(&wrong, &k_view, &v_view, &out_view, NULL), "q: number 256 given");
    wrong = q_view;
    wrong.reserved = 5;
    CHECK_REFUSED(tilewise_attention(&wrong, &k_view, &v_view, &out_view, NULL), "q: reserved is 5");
    wrong = q_view;
    wrong.extents[3] = 7;
    CHECK_REFUSED(tilewise_reference_attention(&wrong, &k_view, &v_view, &out_view, NULL), "head_dim is 8");
    CHECK_REFUSED(tilewise_force_isa(4), "isa: number 4 given");
    CHECK_REFUSED(tilewise_force_isa(-1), "isa: number -1 given");
    CHECK_REFUSED(tilewise_isa_from_name("mmx", &how.causal), "'mmx' given");
    CHECK_REFUSED(tilewise_isa_from_name(NULL, &how.causal), "name: null");
    CHECK(strcmp(tilewise_isa_name(99), "unknown") == 0);
    /* Too much memory is no crash: the naive formulation wants all scores. */
    wrong = tilewise_bhsd(q, TILEWISE_F32, 1, 1, (int64_t)1 << 40, 8);
    wrong.strides[2] = 0;
    {
        tilewise_tensor many = out_view;
        many.extents[2] = (int64_t)1 << 40;
        many.data = (void*)((uintptr_t)1 << 60);
        CHECK(tilewise_reference_attention(&wrong, &wrong, &wrong, &many, NULL) == TILEWISE_OUT_OF_MEMORY);
    }
}

static void test_views(void) {
    const tilewise_tensor view = tilewise_bshd(q, TILEWISE_BF16, 2, 3, 5, 7);
    tilewise_tensor part;
    tilewise_tensor scaled;
    CHECK(view.extents[1] == 5 && view.extents[2] == 3 && view.type == TILEWISE_BF16);
    CHECK(view.strides[0] == 105 && view.strides[1] == 7 && view.strides[2] == 35 && view.strides[3] == 1);
    CHECK(tilewise_slice(&view, TILEWISE_AXIS_TOKENS, 1, 2, &part) == TILEWISE_OK);
    CHECK(part.data == (char*)view.data + 35 * 2 && part.extents[2] == 2);
    CHECK_REFUSED(tilewise_slice(&view, TILEWISE_AXIS_TOKENS, 1, 3, &part), "slice: first 1 and count 3");
    CHECK_REFUSED(tilewise_slice(&view, 4, 1, 3, &part), "axis: number 4");
    CHECK_REFUSED(tilewise_slice(&view, 0, 0, 1, NULL), "part: null");
    CHECK(tilewise_with_scales(&view, q, TILEWISE_SCALES_PER_TOKEN, &scaled) == TILEWISE_OK);
    CHECK(scaled.scales == q && scaled.scale_strides[2] == 1 && scaled.scale_strides[1] == 3);
    CHECK_REFUSED(tilewise_with_scales(&view, q, 3, &scaled), "shared: number 3");
}

static void test_quantising(void) {
    float values[64], scale = 0, scales[64];
    int8_t numbers[64];
    uint8_t bytes[64];
    uint16_t blocks[2 * 17];
    for (int i = 0; i < 64; ++i) { values[i] = (float)(i - 32); }
    CHECK(tilewise_quantize_i8_per_token(values, 2, 32, numbers, scales) == TILEWISE_OK);
    CHECK(numbers[0] == -127 && numbers[63] == 127 && scales[0] == 32.0f / 127.0f);
    CHECK(tilewise_quantize_i8_per_channel(values, 2, 32, numbers, scales) == TILEWISE_OK);
    CHECK(numbers[0] == -127 && numbers[32] == 0);
    CHECK(tilewise_quantize_e4m3(values, 64, bytes, &scale) == TILEWISE_OK && scale == 32.0f / 448.0f);
    CHECK(bytes[0] == 0xfe && bytes[32] == 0);
    CHECK(tilewise_quantize_e5m2(values, 64, bytes, &scale) == TILEWISE_OK && bytes[0] == 0xfb);
    CHECK(tilewise_quantize_q8_0(values, 64, blocks) == TILEWISE_OK);
    CHECK(((const int8_t*)blocks)[2] == -127);
    CHECK(tilewise_quantize_q4_0(values, 64, blocks) == TILEWISE_OK);
    CHECK_REFUSED(tilewise_quantize_q8_0(values, 63, blocks), "63 values and 1 blocks");
    CHECK_REFUSED(tilewise_quantize_q8_0(values, 64, NULL), "blocks: null");
    CHECK_REFUSED(tilewise_quantize_q4_0(values, 64, (char*)blocks + 1), "multiple of 2");
    CHECK_REFUSED(tilewise_quantize_e4m3(values, -1, bytes, &scale), ": -1 elements");
    CHECK_REFUSED(tilewise_quantize_e5m2(values, 64, bytes, NULL), "scale: null");
    CHECK_REFUSED(tilewise_quantize_i8_per_token(values, (int64_t)1 << 62, 4, numbers, scales), "63 bits");
    /* What was quantised serves as keys. */
    CHECK(tilewise_quantize_i8_per_token(k, 4, 8, numbers, scales) == TILEWISE_OK);
    {
        tilewise_tensor quantised = tilewise_bhsd(numbers, TILEWISE_I8, 1, 1, 4, 8);
        CHECK(tilewise_with_scales(&quantised, scales, TILEWISE_SCALES_PER_TOKEN, &quantised) == TILEWISE_OK);
        CHECK(tilewise_attention(&q_view, &quantised, &v_view, &out_view, NULL) == TILEWISE_OK);
    }
}

int main(void) {
    char version[32];
    for (int i = 0; i < 32; ++i) {
        q[i] = (float)i / 32;
        k[i] = (float)(i % 5) / 5;
        v[i] = (float)(i % 7) / 7;
    }
    q_view = tilewise_bhsd(q, TILEWISE_F32, 1, 1, 4, 8);
    k_view = tilewise_bhsd(k, TILEWISE_F32, 1, 1, 4, 8);
    v_view = tilewise_bhsd(v, TILEWISE_F32, 1, 1, 4, 8);
    out_view = tilewise_bhsd(out, TILEWISE_F32, 1, 1, 4, 8);
    CHECK(strcmp(tilewise_last_error(), "") == 0);
    sprintf(version, "%d.%d.%d", TILEWISE_VERSION_MAJOR, TILEWISE_VERSION_MINOR, TILEWISE_VERSION_PATCH);
    CHECK(strcmp(tilewise_version(), version) == 0);
    test_sizes();
    test_wrong_values();
    test_views();
    test_quantising();
    return failures != 0;
}

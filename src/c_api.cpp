// The functions of tilewise.h: each calls one of the C++ headers, and makes a status of what that throws.

#include "tilewise.h"

#include <algorithm>
#include <cstring>
#include <tilewise/tilewise.hpp>

#include "c_values.hpp"
#include "guarded.hpp"

namespace tilewise {

namespace {

static_assert(static_cast<int>(isa::neon) == TILEWISE_NEON);
static_assert(static_cast<int>(axis::head_dim) == TILEWISE_AXIS_HEAD_DIM);
static_assert(static_cast<int>(scales_per::head) == TILEWISE_SCALES_PER_HEAD);

static_assert(static_cast<int>(status_code::internal_error) == TILEWISE_INTERNAL_ERROR);

/// Runs a function that may throw.
template <class Function>
tilewise_status status_of(const Function& call) noexcept {
    return static_cast<tilewise_status>(guarded(call).code);
}

std::int64_t product(std::string_view name, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result)) {
        refuse(name, ": ", a, " x ", b, " elements given, it must be at least 0 and fit in 63 bits");
    }
    return result;
}

template <class Block>
std::span<Block> blocks_of(void* data, std::int64_t values) {
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(Block) != 0) {
        refuse("blocks: the address given must be a multiple of ", alignof(Block));
    }
    return span_of("blocks", static_cast<Block*>(data), values / 32);
}

/// The members that both versions have; `size` stays the caller's.
void write_plan(const plan& from, tilewise_plan* to) {
    const tilewise_plan all{to->size,
                            static_cast<tilewise_isa>(from.isa),
                            from.threads,
                            from.tasks,
                            from.chunk_keys,
                            from.panel_rows,
                            from.block_rows,
                            from.key_parts,
                            from.scratch_bytes_per_thread,
                            from.shared_scratch_bytes,
                            from.scratch_bytes,
                            from.visible_scores,
                            from.flops};
    std::memcpy(to, &all, std::min(to->size, sizeof all));
}

tilewise_tensor dense(const void* data, tilewise_type type, std::int64_t batch, std::int64_t heads,
                      std::int64_t tokens, std::int64_t head_dim, bool heads_first) {
    // The layout alone is asked for: the type is checked when the view is used, and need not be one.
    const float* const any = nullptr;
    const const_tensor view =
        heads_first ? bhsd(any, batch, heads, tokens, head_dim) : bshd(any, batch, tokens, heads, head_dim);
    tilewise_tensor result =
        c_tensor_of(tensor(const_cast<void*>(data), element_type::f32, view.extents, view.strides));
    result.type = type;
    return result;
}

}  // namespace

}  // namespace tilewise

using namespace tilewise;

const char* tilewise_last_error(void) { return last_error(); }

#define TILEWISE_TEXT_OF(x) #x
#define TILEWISE_TEXT(x) TILEWISE_TEXT_OF(x)
const char* tilewise_version(void) {
    return TILEWISE_TEXT(TILEWISE_VERSION_MAJOR) "." TILEWISE_TEXT(TILEWISE_VERSION_MINOR) "." TILEWISE_TEXT(
        TILEWISE_VERSION_PATCH);
}

int32_t tilewise_available_isas(tilewise_isa* isas, int32_t room) {
    int32_t count = 0;
    static_cast<void>(status_of([&] {
        for (const isa which : available_isas()) {
            if (isas != nullptr && count < room) { isas[count] = static_cast<tilewise_isa>(which); }
            ++count;
        }
    }));
    return count;
}

const char* tilewise_isa_name(tilewise_isa which) {
    // Names are literals, so that they end with a 0.
    return which < 0 || which > TILEWISE_NEON ? "unknown" : isa_name(static_cast<isa>(which)).data();
}

tilewise_status tilewise_isa_from_name(const char* name, tilewise_isa* which) {
    return status_of([&] {
        require_pointer("name", name);
        require_pointer("isa", which);
        *which = static_cast<tilewise_isa>(isa_from_name(name));
    });
}

tilewise_status tilewise_active_isa(tilewise_isa* which) {
    return status_of([&] {
        require_pointer("isa", which);
        *which = static_cast<tilewise_isa>(active_isa());
    });
}

tilewise_status tilewise_force_isa(tilewise_isa which) {
    return status_of([&] { force_isa(enumerator<isa>("isa", which, TILEWISE_NEON + 1)); });
}

void tilewise_unforce_isa(void) { unforce_isa(); }

tilewise_tensor tilewise_bhsd(const void* data, tilewise_type type, int64_t batch, int64_t heads,
                              int64_t tokens, int64_t head_dim) {
    return dense(data, type, batch, heads, tokens, head_dim, true);
}

tilewise_tensor tilewise_bshd(const void* data, tilewise_type type, int64_t batch, int64_t tokens,
                              int64_t heads, int64_t head_dim) {
    return dense(data, type, batch, heads, tokens, head_dim, false);
}

tilewise_status tilewise_with_scales(const tilewise_tensor* view, const float* scales, int32_t shared,
                                     tilewise_tensor* result) {
    return status_of([&] {
        require_pointer("result", result);
        const auto per = enumerator<scales_per>("shared", shared, TILEWISE_SCALES_PER_HEAD + 1);
        *result = c_tensor_of(with_scales(tensor_of("view", view), scales, per));
    });
}

tilewise_status tilewise_slice(const tilewise_tensor* view, int32_t along, int64_t first, int64_t count,
                               tilewise_tensor* part) {
    return status_of([&] {
        require_pointer("part", part);
        const auto which = enumerator<axis>("axis", along, TILEWISE_AXIS_HEAD_DIM + 1);
        *part = c_tensor_of(tensor_of("view", view).slice(which, first, count));
    });
}

tilewise_status tilewise_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                   const tilewise_tensor* v, const tilewise_tensor* out,
                                   const tilewise_options* how) {
    return status_of([&] {
        const c_options set(how);
        attention(tensor_of("q", q), tensor_of("k", k), tensor_of("v", v), tensor_of("out", out), set.get());
    });
}

tilewise_status tilewise_reference_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                             const tilewise_tensor* v, const tilewise_tensor* out,
                                             const tilewise_options* how) {
    return status_of([&] {
        const c_options set(how);
        reference::attention(tensor_of("q", q), tensor_of("k", k), tensor_of("v", v), tensor_of("out", out),
                             set.get());
    });
}

tilewise_status tilewise_plan_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                        const tilewise_tensor* v, const tilewise_tensor* out,
                                        const tilewise_options* how, tilewise_plan* result) {
    return status_of([&] {
        require_pointer("plan", result);
        if (result->size < sizeof(std::size_t)) {
            refuse("plan: size is ", result->size, ", it must be sizeof(tilewise_plan)");
        }
        const c_options set(how);
        write_plan(plan_attention(tensor_of("q", q), tensor_of("k", k), tensor_of("v", v),
                                  tensor_of("out", out), set.get()),
                   result);
    });
}

tilewise_status tilewise_quantize_q8_0(const float* values, int64_t count, void* blocks) {
    return status_of(
        [&] { quantize_q8_0(span_of("values", values, count), blocks_of<q8_0_block>(blocks, count)); });
}

tilewise_status tilewise_quantize_q4_0(const float* values, int64_t count, void* blocks) {
    return status_of(
        [&] { quantize_q4_0(span_of("values", values, count), blocks_of<q4_0_block>(blocks, count)); });
}

tilewise_status tilewise_quantize_i8_per_token(const float* values, int64_t tokens, int64_t head_dim,
                                               int8_t* numbers, float* scales) {
    return status_of([&] {
        const int64_t count = product("values", tokens, head_dim);
        quantize_i8_per_token(span_of("values", values, count), span_of("numbers", numbers, count),
                              span_of("scales", scales, tokens));
    });
}

tilewise_status tilewise_quantize_i8_per_channel(const float* values, int64_t tokens, int64_t head_dim,
                                                 int8_t* numbers, float* scales) {
    return status_of([&] {
        const int64_t count = product("values", tokens, head_dim);
        quantize_i8_per_channel(span_of("values", values, count), span_of("numbers", numbers, count),
                                span_of("scales", scales, head_dim));
    });
}

// Each is one byte, whose bits are those of the number.
tilewise_status tilewise_quantize_e4m3(const float* values, int64_t count, uint8_t* numbers, float* scale) {
    return status_of([&] {
        require_pointer("scale", scale);
        *scale = quantize_e4m3(span_of("values", values, count),
                               span_of("numbers", reinterpret_cast<float8_e4m3*>(numbers), count));
    });
}

tilewise_status tilewise_quantize_e5m2(const float* values, int64_t count, uint8_t* numbers, float* scale) {
    return status_of([&] {
        require_pointer("scale", scale);
        *scale = quantize_e5m2(span_of("values", values, count),
                               span_of("numbers", reinterpret_cast<float8_e5m2*>(numbers), count));
    });
}

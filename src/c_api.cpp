// The functions of tilewise.h: each reads the structures of C, and calls one of the C++ headers. Those of
// caches, streams, and what changes tensors are in files of their own.

#include "tilewise.h"

#include <tilewise/tilewise.hpp>

#include "c_values.hpp"
#include "cpu.hpp"
#include "heap_array.hpp"

namespace tilewise {

namespace {

static_assert(static_cast<int>(isa::neon) == TILEWISE_NEON);
static_assert(static_cast<int>(axis::head_dim) == TILEWISE_AXIS_HEAD_DIM);
static_assert(static_cast<int>(scales_per::head) == TILEWISE_SCALES_PER_HEAD);

/// The arguments that every call of attention has.
struct c_arguments {
    const_tensor q;
    const_tensor k;
    const_tensor v;
    tensor out;
    c_options how;

    [[nodiscard]] bool read(const tilewise_tensor* from_q, const tilewise_tensor* from_k,
                            const tilewise_tensor* from_v, const tilewise_tensor* to_out,
                            const tilewise_options* from_how) {
        return how.read(from_how) && read_tensor("q", from_q, q) && read_tensor("k", from_k, k) &&
               read_tensor("v", from_v, v) && read_tensor("out", to_out, out);
    }
};

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

const char* tilewise_last_error(void) { return error_of_thread().message.c_str(); }

#define TILEWISE_TEXT_OF(x) #x
#define TILEWISE_TEXT(x) TILEWISE_TEXT_OF(x)
const char* tilewise_version(void) {
    return TILEWISE_TEXT(TILEWISE_VERSION_MAJOR) "." TILEWISE_TEXT(TILEWISE_VERSION_MINOR) "." TILEWISE_TEXT(
        TILEWISE_VERSION_PATCH);
}

int32_t tilewise_available_isas(tilewise_isa* isas, int32_t room) {
    std::span<const isa> available;
    if (!find_available_isas(available)) { return 0; }
    int32_t count = 0;
    for (const isa which : available) {
        if (isas != nullptr && count < room) { isas[count] = static_cast<tilewise_isa>(which); }
        ++count;
    }
    return count;
}

const char* tilewise_isa_name(tilewise_isa which) {
    // Names are literals, so that they end with a 0.
    return which < 0 || which > TILEWISE_NEON ? "unknown" : isa_name(static_cast<isa>(which)).data();
}

tilewise_status tilewise_isa_from_name(const char* name, tilewise_isa* which) {
    isa found{};
    if (!require_pointer("name", name) || !require_pointer("isa", which) || !find_isa(name, found)) {
        return c_status(false);
    }
    *which = static_cast<tilewise_isa>(found);
    return TILEWISE_OK;
}

tilewise_status tilewise_active_isa(tilewise_isa* which) {
    isa found{};
    if (!require_pointer("isa", which) || !find_active_isa(found)) { return c_status(false); }
    *which = static_cast<tilewise_isa>(found);
    return TILEWISE_OK;
}

tilewise_status tilewise_force_isa(tilewise_isa which) {
    isa wanted{};
    return c_status(read_enumerator("isa", which, TILEWISE_NEON + 1, wanted) && set_forced_isa(wanted));
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
    tensor from;
    scales_per per{};
    if (!require_pointer("result", result) ||
        !read_enumerator("shared", shared, TILEWISE_SCALES_PER_HEAD + 1, per) ||
        !read_tensor("view", view, from)) {
        return c_status(false);
    }
    *result = c_tensor_of(with_scales(from, scales, per));
    return TILEWISE_OK;
}

tilewise_status tilewise_slice(const tilewise_tensor* view, int32_t along, int64_t first, int64_t count,
                               tilewise_tensor* part) {
    tensor from;
    axis which{};
    if (!require_pointer("part", part) ||
        !read_enumerator("axis", along, TILEWISE_AXIS_HEAD_DIM + 1, which) ||
        !read_tensor("view", view, from) || !check_slice(from, which, first, count)) {
        return c_status(false);
    }
    *part = c_tensor_of(from.slice(which, first, count));
    return TILEWISE_OK;
}

tilewise_status tilewise_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                   const tilewise_tensor* v, const tilewise_tensor* out,
                                   const tilewise_options* how) {
    c_arguments given;
    if (!given.read(q, k, v, out, how)) { return c_status(false); }
    return c_status(try_attention(given.q, given.k, given.v, given.out, given.how.get()));
}

tilewise_status tilewise_reference_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                             const tilewise_tensor* v, const tilewise_tensor* out,
                                             const tilewise_options* how) {
    c_arguments given;
    if (!given.read(q, k, v, out, how)) { return c_status(false); }
    return c_status(reference::try_attention(given.q, given.k, given.v, given.out, given.how.get()));
}

tilewise_status tilewise_plan_attention(const tilewise_tensor* q, const tilewise_tensor* k,
                                        const tilewise_tensor* v, const tilewise_tensor* out,
                                        const tilewise_options* how, tilewise_plan* result) {
    c_arguments given;
    if (!check_plan(result) || !given.read(q, k, v, out, how)) { return c_status(false); }
    plan planned;
    const status done = try_plan_attention(given.q, given.k, given.v, given.out, given.how.get(), planned);
    if (done.is_ok()) { write_plan(planned, result); }
    return c_status(done);
}

tilewise_status tilewise_merge(const tilewise_partial_result* parts, int64_t part_count,
                               const tilewise_tensor* out, const tilewise_tensor* lse) {
    std::span<const tilewise_partial_result> given;
    heap_array<partial_result> read;
    tensor to_out;
    tensor to_lse;
    if (!read_span("parts", parts, part_count, given) || !read_tensor("out", out, to_out) ||
        !read_optional_tensor("lse", lse, to_lse) || !read.allocate(given.size())) {
        return c_status(false);
    }
    for (std::size_t n = 0; n < given.size(); ++n) {
        if (!read_tensor("parts.out", given[n].out, read[n].out) ||
            !read_tensor("parts.lse", given[n].lse, read[n].lse)) {
            return c_status(false);
        }
    }
    return c_status(try_merge({read.data(), read.size()}, to_out, to_lse));
}

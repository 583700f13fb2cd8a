// The functions of tilewise.h that change or make tensors: quantising, and rotary position embedding.

#include <tilewise/quantize.hpp>
#include <tilewise/rotary.hpp>

#include "c_values.hpp"
#include "tilewise.h"

namespace tilewise {

namespace {

static_assert(static_cast<int>(rotary_pairs::interleaved) == TILEWISE_ROTARY_INTERLEAVED);

bool read_product(std::string_view name, std::int64_t a, std::int64_t b, std::int64_t& product) {
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) {
        return refuse(name, ": ", a, " x ", b, " elements given, it must be at least 0 and fit in 63 bits");
    }
    return true;
}

template <class Block>
bool read_blocks(void* data, std::int64_t values, std::span<Block>& blocks) {
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(Block) != 0) {
        return refuse("blocks: the address given must be a multiple of ", alignof(Block));
    }
    return read_span("blocks", static_cast<Block*>(data), values / 32, blocks);
}

template <class Block>
tilewise_status quantize_blocks(const float* values, std::int64_t count, void* data,
                                status (*quantize)(std::span<const float>, std::span<Block>) noexcept) {
    std::span<const float> from;
    std::span<Block> blocks;
    if (!read_span("values", values, count, from) || !read_blocks(data, count, blocks)) {
        return c_status(false);
    }
    return c_status(quantize(from, blocks));
}

using quantize_function = status (*)(std::span<const float>, std::span<std::int8_t>,
                                     std::span<float>) noexcept;

tilewise_status quantize_i8(const float* values, std::int64_t tokens, std::int64_t head_dim,
                            std::int8_t* numbers, float* scales, std::int64_t scale_count,
                            quantize_function quantize) {
    std::int64_t count = 0;
    std::span<const float> from;
    std::span<std::int8_t> to;
    std::span<float> scales_to;
    if (!read_product("values", tokens, head_dim, count) || !read_span("values", values, count, from) ||
        !read_span("numbers", numbers, count, to) || !read_span("scales", scales, scale_count, scales_to)) {
        return c_status(false);
    }
    return c_status(quantize(from, to, scales_to));
}

/// Each number is one byte, whose bits are those of the number.
template <class Number>
tilewise_status quantize_float8(const float* values, std::int64_t count, std::uint8_t* numbers, float* scale,
                                status (*quantize)(std::span<const float>, std::span<Number>,
                                                   float&) noexcept) {
    std::span<const float> from;
    std::span<Number> to;
    if (!require_pointer("scale", scale) || !read_span("values", values, count, from) ||
        !read_span("numbers", reinterpret_cast<Number*>(numbers), count, to)) {
        return c_status(false);
    }
    return c_status(quantize(from, to, *scale));
}

bool read_rotary_options(const tilewise_rotary_options* how, rotary_options& to) {
    constexpr std::size_t least_size =
        offsetof(tilewise_rotary_options, position_count) + sizeof(std::int64_t);
    tilewise_rotary_options from;
    if (!read_structure("rotary_options", how, least_size, from)) { return false; }
    if (from.has_dims != 0) { to.dims = from.dims; }
    if (from.theta != 0.0) { to.theta = from.theta; }
    to.first_position = from.first_position;
    return read_enumerator("pairs", from.pairs, TILEWISE_ROTARY_INTERLEAVED + 1, to.pairs) &&
           read_span("positions", from.positions, from.position_count, to.positions);
}

}  // namespace

}  // namespace tilewise

using namespace tilewise;

tilewise_status tilewise_quantize_q8_0(const float* values, int64_t count, void* blocks) {
    return quantize_blocks<q8_0_block>(values, count, blocks, try_quantize_q8_0);
}

tilewise_status tilewise_quantize_q4_0(const float* values, int64_t count, void* blocks) {
    return quantize_blocks<q4_0_block>(values, count, blocks, try_quantize_q4_0);
}

tilewise_status tilewise_quantize_i8_per_token(const float* values, int64_t tokens, int64_t head_dim,
                                               int8_t* numbers, float* scales) {
    return quantize_i8(values, tokens, head_dim, numbers, scales, tokens, try_quantize_i8_per_token);
}

tilewise_status tilewise_quantize_i8_per_channel(const float* values, int64_t tokens, int64_t head_dim,
                                                 int8_t* numbers, float* scales) {
    return quantize_i8(values, tokens, head_dim, numbers, scales, head_dim, try_quantize_i8_per_channel);
}

tilewise_status tilewise_quantize_e4m3(const float* values, int64_t count, uint8_t* numbers, float* scale) {
    return quantize_float8<float8_e4m3>(values, count, numbers, scale, try_quantize_e4m3);
}

tilewise_status tilewise_quantize_e5m2(const float* values, int64_t count, uint8_t* numbers, float* scale) {
    return quantize_float8<float8_e5m2>(values, count, numbers, scale, try_quantize_e5m2);
}

tilewise_status tilewise_rotary_embedding(const tilewise_tensor* x, const tilewise_rotary_options* how) {
    tensor rows;
    rotary_options read;
    if (!read_tensor("x", x, rows) || !read_rotary_options(how, read)) { return c_status(false); }
    return c_status(try_rotary_embedding(rows, read));
}

tilewise_status tilewise_rotary_embedding_by_tables(const tilewise_tensor* x, const tilewise_tensor* cosines,
                                                    const tilewise_tensor* sines,
                                                    const tilewise_rotary_options* how) {
    tensor rows;
    const_tensor read_cosines;
    const_tensor read_sines;
    rotary_options read;
    if (!read_tensor("x", x, rows) || !read_tensor("cosines", cosines, read_cosines) ||
        !read_tensor("sines", sines, read_sines) || !read_rotary_options(how, read)) {
        return c_status(false);
    }
    return c_status(try_rotary_embedding(rows, read_cosines, read_sines, read));
}

tilewise_status tilewise_rotary_tables(const tilewise_tensor* cosines, const tilewise_tensor* sines,
                                       const tilewise_rotary_options* how) {
    tensor to_cosines;
    tensor to_sines;
    rotary_options read;
    if (!read_tensor("cosines", cosines, to_cosines) || !read_tensor("sines", sines, to_sines) ||
        !read_rotary_options(how, read)) {
        return c_status(false);
    }
    return c_status(try_rotary_tables(to_cosines, to_sines, read));
}

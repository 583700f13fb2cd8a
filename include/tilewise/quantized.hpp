// Storage of quantised keys and values, bit for bit as files and caches have it. quantize.hpp fills it.

#ifndef TILEWISE_QUANTIZED_HPP
#define TILEWISE_QUANTIZED_HPP

#include <cstdint>

#include <tilewise/half.hpp>

namespace tilewise {

/// ggml's Q8_0: 32 values of head_dim; value i is scale * values[i].
struct q8_0_block {
    float16 scale;
    std::int8_t values[32];
};
static_assert(sizeof(q8_0_block) == 34);

/// ggml's Q4_0: value i is scale * (n - 8), where n is the low half of values[i] for i below 16, and the high
/// half of values[i - 16] from there on.
struct q4_0_block {
    float16 scale;
    std::uint8_t values[16];
};
static_assert(sizeof(q4_0_block) == 18);

}  // namespace tilewise

#endif

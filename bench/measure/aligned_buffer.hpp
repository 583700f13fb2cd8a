// Uninitialised floats at a multiple of 64 bytes, as the vector loops want them.

#ifndef TILEWISE_MEASURE_ALIGNED_BUFFER_HPP
#define TILEWISE_MEASURE_ALIGNED_BUFFER_HPP

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

namespace tilewise::measure {

struct free_aligned {
    void operator()(float* memory) const { std::free(memory); }
};
using aligned_buffer = std::unique_ptr<float[], free_aligned>;

/// Throws std::bad_alloc if it cannot be had.
[[nodiscard]] inline aligned_buffer allocate_aligned(std::size_t floats) {
    if (floats > std::numeric_limits<std::size_t>::max() / sizeof(float) - 64) { throw std::bad_alloc(); }
    const std::size_t bytes = (floats * sizeof(float) + 64) / 64 * 64;
    auto* memory = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (memory == nullptr) { throw std::bad_alloc(); }
    return aligned_buffer(memory);
}

}  // namespace tilewise::measure

#endif

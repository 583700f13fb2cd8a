#include "storage.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "machine.hpp"
#include "stored.hpp"

namespace tilewise::suites {
namespace {

/// Not a power of two, so that rows are not all alike; a multiple of every block.
constexpr std::size_t pattern_elements = 30'240;

/// From -2 to 2; from -120 to 120 where numbers are integers.
std::vector<std::byte> pattern_of(element_type type) {
    const float factor = type == element_type::i8 ? 60.0F : 1.0F;
    std::vector<float> values(pattern_elements);
    std::uint32_t state = 1;
    for (float& value : values) {
        state = state * 1664525U + 1013904223U;
        value = factor * (static_cast<float>(state >> 8) * 0x1p-22F - 2.0F);
    }
    return measure::stored_as(type, values);
}

}  // namespace

storage::storage(element_type type, std::int64_t elements) {
    constexpr std::size_t page = 4096;
    const auto needed = static_cast<std::size_t>(measure::bytes_of(type, static_cast<double>(elements)));
    bytes_ = (needed + page) / page * page;
    if (bytes_ > measure::available_memory() / 2) { throw std::bad_alloc(); }
    memory_ = measure::allocate_aligned(bytes_ / sizeof(float));
    const std::vector<std::byte> pattern = pattern_of(type);
    auto* const to = reinterpret_cast<std::byte*>(memory_.get());
    for (std::size_t done = 0; done < bytes_; done += pattern.size()) {
        std::memcpy(to + done, pattern.data(), std::min(pattern.size(), bytes_ - done));
    }
}

}  // namespace tilewise::suites

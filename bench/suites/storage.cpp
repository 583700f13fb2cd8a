#include "storage.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include <tilewise/half.hpp>
#include <tilewise/quantize.hpp>

#include "machine.hpp"
#include "shape.hpp"

namespace tilewise::suites {
namespace {

/// Not a power of two, so that rows are not all alike; a multiple of every block.
constexpr std::size_t pattern_elements = 30'240;

/// From -2 to 2.
std::vector<float> numbers() {
    std::vector<float> values(pattern_elements);
    std::uint32_t state = 1;
    for (float& value : values) {
        state = state * 1664525U + 1013904223U;
        value = static_cast<float>(state >> 8) * 0x1p-22F - 2.0F;
    }
    return values;
}

template <class Stored>
std::vector<std::byte> bytes_from(const std::vector<Stored>& stored) {
    std::vector<std::byte> bytes(stored.size() * sizeof(Stored));
    std::memcpy(bytes.data(), stored.data(), bytes.size());
    return bytes;
}

template <class Stored>
std::vector<std::byte> convert(const std::vector<float>& values) {
    std::vector<Stored> stored;
    stored.reserve(values.size());
    for (const float value : values) { stored.push_back(Stored(value)); }
    return bytes_from(stored);
}

std::vector<std::byte> pattern_of(element_type type) {
    const std::vector<float> values = numbers();
    switch (type) {
        case element_type::f16:
            return convert<float16>(values);
        case element_type::bf16:
            return convert<bfloat16>(values);
        case element_type::e4m3:
            return convert<float8_e4m3>(values);
        case element_type::e5m2:
            return convert<float8_e5m2>(values);
        case element_type::q8_0: {
            std::vector<q8_0_block> blocks(values.size() / 32);
            quantize_q8_0(values, blocks);
            return bytes_from(blocks);
        }
        case element_type::q4_0: {
            std::vector<q4_0_block> blocks(values.size() / 32);
            quantize_q4_0(values, blocks);
            return bytes_from(blocks);
        }
        case element_type::i8: {
            std::vector<std::int8_t> stored;
            stored.reserve(values.size());
            for (const float value : values) { stored.push_back(static_cast<std::int8_t>(value * 60.0F)); }
            return bytes_from(stored);
        }
        default:
            return bytes_from(values);
    }
}

}  // namespace

storage::storage(element_type type, std::int64_t elements) {
    constexpr std::size_t page = 4096;
    const auto needed = static_cast<std::size_t>(bytes_of(type, static_cast<double>(elements)));
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

#include "stored.hpp"

#include <cstdint>
#include <cstring>

#include <tilewise/half.hpp>
#include <tilewise/quantize.hpp>

namespace tilewise::measure {
namespace {

template <class Stored>
std::vector<std::byte> bytes_from(const std::vector<Stored>& stored) {
    std::vector<std::byte> bytes(stored.size() * sizeof(Stored));
    std::memcpy(bytes.data(), stored.data(), bytes.size());
    return bytes;
}

template <class Stored>
std::vector<std::byte> convert(std::span<const float> values) {
    std::vector<Stored> stored;
    stored.reserve(values.size());
    for (const float value : values) { stored.push_back(static_cast<Stored>(value)); }
    return bytes_from(stored);
}

}  // namespace

std::vector<std::byte> stored_as(element_type type, std::span<const float> values) {
    switch (type) {
        case element_type::f16:
            return convert<float16>(values);
        case element_type::bf16:
            return convert<bfloat16>(values);
        case element_type::f64:
            return convert<double>(values);
        case element_type::i8:
            return convert<std::int8_t>(values);
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
        default:
            return convert<float>(values);
    }
}

const char* name_of(element_type type) {
    switch (type) {
        case element_type::f16:
            return "f16";
        case element_type::bf16:
            return "bf16";
        case element_type::f64:
            return "f64";
        case element_type::q8_0:
            return "q8_0";
        case element_type::q4_0:
            return "q4_0";
        case element_type::i8:
            return "i8";
        case element_type::e4m3:
            return "e4m3";
        case element_type::e5m2:
            return "e5m2";
        default:
            return "f32";
    }
}

bool has_scales(element_type type) {
    return type == element_type::i8 || type == element_type::e4m3 || type == element_type::e5m2;
}

double bytes_of(element_type type, double elements) {
    const element_block block = block_of(type);
    return elements * static_cast<double>(block.bytes) / static_cast<double>(block.elements);
}

}  // namespace tilewise::measure

#include "support.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tilewise_tests {

effort test_effort() {
    const char* name = std::getenv("TILEWISE_TEST_EFFORT");
    return name != nullptr && std::string_view(name) == "quick" ? effort::quick : effort::full;
}

bool isa_is_slow() { return tilewise::active_isa() == tilewise::isa::sse2; }

std::int64_t by_effort(std::int64_t quick, std::int64_t slow, std::int64_t full) {
    if (test_effort() == effort::quick) { return quick; }
    return isa_is_slow() ? slow : full;
}

std::uint64_t random_source::bits() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31U);
}

std::int64_t random_source::between(std::int64_t first, std::int64_t last) {
    const auto count = static_cast<std::uint64_t>(last - first + 1);
    return first + static_cast<std::int64_t>(bits() % count);
}

float random_source::uniform() { return static_cast<float>(bits() >> 40U) * 0x1p-24F; }

float random_source::normal() {
    const std::uint64_t all = bits();
    std::int32_t sum = -2 * 0xffff;
    for (unsigned part = 0; part < 4; ++part) {
        sum += static_cast<std::int32_t>((all >> (16U * part)) & 0xffffU);
    }
    // A uniform 16-bit number has the variance 2^32 / 12, so four of them have 2^32 / 3.
    return static_cast<float>(sum) * (1.7320508F * 0x1p-16F);
}

double random_source::precise_normal() {
    const auto part = [&] { return static_cast<double>(normal()); };
    const double high = part();
    const double middle = part();
    return high + 0x1p-16 * middle + 0x1p-32 * part();
}

std::string show(float value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.9g (0x%08x)", static_cast<double>(value),
                  static_cast<unsigned>(bits_of(value)));
    return text.data();
}

std::string show(double value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.17g (%a)", value, value);
    return text.data();
}

namespace {
std::int64_t offset(const std::array<std::int64_t, 4>& strides, std::int64_t b, std::int64_t h,
                    std::int64_t t, std::int64_t i) {
    return b * strides[0] + h * strides[1] + t * strides[2] + i * strides[3];
}
}  // namespace

const float* element(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
                     std::int64_t i) {
    return static_cast<const float*>(of.data) + offset(of.strides, b, h, t, i);
}

float* element(const tilewise::tensor& of, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) {
    return static_cast<float*>(of.data) + offset(of.strides, b, h, t, i);
}

std::string show(tilewise::element_type type) {
    switch (type) {
        case tilewise::element_type::f32:
            return "f32";
        case tilewise::element_type::f16:
            return "f16";
        case tilewise::element_type::bf16:
            return "bf16";
        case tilewise::element_type::q8_0:
            return "q8_0";
        case tilewise::element_type::q4_0:
            return "q4_0";
        case tilewise::element_type::i8:
            return "i8";
        case tilewise::element_type::e4m3:
            return "e4m3";
        case tilewise::element_type::e5m2:
            return "e5m2";
        case tilewise::element_type::f64:
            return "f64";
        default:
            return "another type";
    }
}

std::uint32_t stored_bits(float value, tilewise::element_type type) {
    switch (type) {
        case tilewise::element_type::f16:
            return tilewise::float16(value).bits;
        case tilewise::element_type::bf16:
            return tilewise::bfloat16(value).bits;
        default:
            return bits_of(value);
    }
}

float value_of_bits(std::uint32_t bits, tilewise::element_type type) {
    const auto half = static_cast<std::uint16_t>(bits);
    switch (type) {
        case tilewise::element_type::f16:
            return static_cast<float>(std::bit_cast<tilewise::float16>(half));
        case tilewise::element_type::bf16:
            return static_cast<float>(std::bit_cast<tilewise::bfloat16>(half));
        default:
            return from_bits(bits);
    }
}

namespace {
std::size_t bytes_of(tilewise::element_type type) {
    return static_cast<std::size_t>(tilewise::block_of(type).bytes);
}
}  // namespace

std::uint32_t bits_at(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
                      std::int64_t i) {
    const auto bytes = static_cast<std::int64_t>(bytes_of(of.type));
    std::uint32_t bits = 0;  // the lowest bytes come first on all systems that there are kernels for
    std::memcpy(&bits, static_cast<const std::byte*>(of.data) + offset(of.strides, b, h, t, i) * bytes,
                bytes_of(of.type));
    return bits;
}

float value_at(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
               std::int64_t i) {
    if (of.type == tilewise::element_type::f64) { return static_cast<float>(f64_at(of, b, h, t, i)); }
    return value_of_bits(bits_at(of, b, h, t, i), of.type);
}

double& f64_at(const tilewise::tensor& of, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) {
    return static_cast<double*>(of.data)[offset(of.strides, b, h, t, i)];
}

double f64_at(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
              std::int64_t i) {
    return static_cast<const double*>(of.data)[offset(of.strides, b, h, t, i)];
}

void set_bits(const tilewise::tensor& of, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i,
              std::uint32_t bits) {
    const auto bytes = static_cast<std::int64_t>(bytes_of(of.type));
    std::memcpy(static_cast<std::byte*>(of.data) + offset(of.strides, b, h, t, i) * bytes, &bits,
                bytes_of(of.type));
}

namespace {
bool same_bits(const tilewise::const_tensor& got, const tilewise::const_tensor& want, std::int64_t b,
               std::int64_t h, std::int64_t t, std::int64_t i) {
    if (got.type != tilewise::element_type::f64) {
        return bits_at(got, b, h, t, i) == bits_at(want, b, h, t, i);
    }
    return bits_of(f64_at(got, b, h, t, i)) == bits_of(f64_at(want, b, h, t, i));
}

std::string show_element(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
                         std::int64_t i) {
    if (of.type == tilewise::element_type::f64) { return show(f64_at(of, b, h, t, i)); }
    return show(value_at(of, b, h, t, i));
}
}  // namespace

std::string first_difference(const tilewise::const_tensor& got, const tilewise::const_tensor& want) {
    if (got.extents != want.extents) { return "the extents differ"; }
    if (got.type != want.type) { return "the types differ"; }
    for (std::int64_t b = 0; b < got.batch(); ++b) {
        for (std::int64_t h = 0; h < got.heads(); ++h) {
            for (std::int64_t t = 0; t < got.tokens(); ++t) {
                for (std::int64_t i = 0; i < got.head_dim(); ++i) {
                    if (same_bits(got, want, b, h, t, i)) { continue; }
                    return "element (" + std::to_string(b) + ", " + std::to_string(h) + ", " +
                           std::to_string(t) + ", " + std::to_string(i) + "): got " +
                           show_element(got, b, h, t, i) + ", want " + show_element(want, b, h, t, i);
                }
            }
        }
    }
    return {};
}

std::string first_difference(std::initializer_list<named_pair> all) {
    for (const named_pair& each : all) {
        const std::string found = first_difference(each.got, each.want);
        if (!found.empty()) { return std::string(each.name) + ": " + found; }
    }
    return {};
}

}  // namespace tilewise_tests

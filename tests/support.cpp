#include "support.hpp"

#include <array>
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

std::string show(float value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.9g (0x%08x)", static_cast<double>(value),
                  static_cast<unsigned>(bits_of(value)));
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

std::string first_difference(const tilewise::const_tensor& got, const tilewise::const_tensor& want) {
    if (got.extents != want.extents) { return "the extents differ"; }
    for (std::int64_t b = 0; b < got.batch(); ++b) {
        for (std::int64_t h = 0; h < got.heads(); ++h) {
            for (std::int64_t t = 0; t < got.tokens(); ++t) {
                for (std::int64_t i = 0; i < got.head_dim(); ++i) {
                    const float* one = element(got, b, h, t, i);
                    const float* other = element(want, b, h, t, i);
                    if (std::memcmp(one, other, sizeof(float)) == 0) { continue; }
                    return "element (" + std::to_string(b) + ", " + std::to_string(h) + ", " +
                           std::to_string(t) + ", " + std::to_string(i) + "): got " + show(*one) + ", want " +
                           show(*other);
                }
            }
        }
    }
    return {};
}

}  // namespace tilewise_tests

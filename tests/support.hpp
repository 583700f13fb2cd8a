// What every test file needs: how much to test, numbers that are the same on every system, and the
// comparison of bits.

#ifndef TILEWISE_TESTS_SUPPORT_HPP
#define TILEWISE_TESTS_SUPPORT_HPP

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include <tilewise/tilewise.hpp>

namespace tilewise_tests {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
inline constexpr std::uint32_t canonical_nan_bits = 0x7fc00000U;

/// `quick` is for emulators and sanitizers: TILEWISE_TEST_EFFORT=quick. The default is `full`.
enum class effort : std::uint8_t { quick, full };
effort test_effort();

/// True where the active instruction set emulates its fused multiply-add, which makes the kernels some ten
/// times slower: tests then take fewer of the large sizes.
bool isa_is_slow();

/// One of three sizes: for quick effort, for slow instruction sets, and for all others.
std::int64_t by_effort(std::int64_t quick, std::int64_t slow, std::int64_t full);

/// A sequence of pseudo-random numbers (splitmix64), the same on every system.
class random_source {
public:
    explicit random_source(std::uint64_t seed) : state_(seed) {}

    std::uint64_t bits();
    /// Uniform in first .. last, both included.
    std::int64_t between(std::int64_t first, std::int64_t last);
    /// Uniform in [0, 1), a multiple of 2^-24.
    float uniform();
    /// Nearly normal, mean 0 and variance 1: the sum of four uniform numbers, exact integers but for one
    /// rounding.
    float normal();
    /// The same with all bits of a double.
    double precise_normal();

private:
    std::uint64_t state_;
};

inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }
inline float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// A number with its bits: "1.5 (0x3fc00000)".
std::string show(float value);
std::string show(double value);

std::string show(tilewise::element_type type);

/// Bits of one element, of any type of up to 32 bits, and its value: what a float becomes when it is stored,
/// and back.
std::uint32_t stored_bits(float value, tilewise::element_type type);
float value_of_bits(std::uint32_t bits, tilewise::element_type type);

/// The bits of element (b, h, t, i) of a view of such a type, and its value, of f64 as well.
std::uint32_t bits_at(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
                      std::int64_t i);
float value_at(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
               std::int64_t i);
void set_bits(const tilewise::tensor& of, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i,
              std::uint32_t bits);

/// Element (b, h, t, i) of an f64 view.
double& f64_at(const tilewise::tensor& of, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i);
double f64_at(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
              std::int64_t i);

/// The address of element (b, h, t, i) of an f32 view.
const float* element(const tilewise::const_tensor& of, std::int64_t b, std::int64_t h, std::int64_t t,
                     std::int64_t i);
float* element(const tilewise::tensor& of, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i);

/// Empty if two tensors of the same extents and type have the same bits; else the first difference, in words.
std::string first_difference(const tilewise::const_tensor& got, const tilewise::const_tensor& want);

/// The same for several, with the name of the one that differs.
struct named_pair {
    const char* name;
    tilewise::const_tensor got;
    tilewise::const_tensor want;
};
std::string first_difference(std::initializer_list<named_pair> all);

}  // namespace tilewise_tests

#endif

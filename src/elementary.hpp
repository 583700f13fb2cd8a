// Elementary functions in binary64 that have one answer everywhere: fixed sequences of additions,
// multiplications and divisions, round to nearest, none of them fused (which is slow on the x86-64
// baseline). For what is computed outside of the kernels; contract.hpp has those of the kernels, in binary32.

#ifndef TILEWISE_SRC_ELEMENTARY_HPP
#define TILEWISE_SRC_ELEMENTARY_HPP

#include <bit>
#include <cstddef>
#include <cstdint>

#include "contract.hpp"

namespace tilewise::elementary {

inline constexpr double ln_2 = 0x1.62e42fefa39efp-1;
inline constexpr double two_pi = 0x1.921fb54442d18p+2;
inline constexpr double inverse_of_two_pi = 0x1.45f306dc9c883p-3;

/// The nearest integer, ties to even, for |x| < 2^51.
inline double round_to_integer(double x) { return x + 0x1.8p52 - 0x1.8p52; }

/// 2^x for |x| < 2^51; 0 below 2^-1022, infinity from 2^1024 on. At most 2 ulp off.
inline double exp2(double x) {
    const double whole = round_to_integer(x);
    if (whole < -1022.0) { return 0.0; }
    if (whole > 1023.0) { return std::bit_cast<double>(std::uint64_t{0x7ff} << 52U); }
    // The series of e^y by Horner's rule: y^14 / 14! is below 2^-57 here.
    const double y = (x - whole) * ln_2;
    double sum = 1.0;
    for (int n = 13; n >= 1; --n) { sum = 1.0 + y / n * sum; }
    const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(whole) + 1023);
    return sum * std::bit_cast<double>(exponent << 52U);
}

/// log2 x for a positive normal x. Absolute error at most 2^-52, and half an ulp of the result besides.
inline double log2(double x) {
    constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcdU;
    // x = 2^whole * m, m in [sqrt(1/2), sqrt(2)); ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...), s = (m - 1) / (m +
    // 1).
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto whole = static_cast<std::int64_t>(bits - sqrt_half) >> 52U;
    const auto m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(whole) << 52U));
    const double s = (m - 1.0) / (m + 1.0);
    const double square = s * s;
    double sum = 0.0;
    for (int n = 25; n >= 3; n -= 2) { sum = (sum + 1.0 / n) * square; }
    return static_cast<double>(whole) + (2.0 * s + 2.0 * s * sum) * contract::log2_e_double;
}

struct sine_and_cosine {
    double sine;
    double cosine;
};

/// Of the angle 2 pi turns, for |turns| < 2^49. At most 2^-51 off.
inline sine_and_cosine sine_and_cosine_of(double turns) {
    const double quarters = round_to_integer(4.0 * turns);
    // At most 1/8 of a turn is left; the first terms that are left out are below 2^-63.
    const double angle = (turns - 0.25 * quarters) * two_pi;
    const double square = angle * angle;
    double sine = 1.0;
    double cosine = 1.0;
    for (int n = 18; n >= 2; n -= 2) {
        sine = 1.0 - square / (n * (n + 1)) * sine;
        cosine = 1.0 - square / (n * (n - 1)) * cosine;
    }
    sine *= angle;
    switch (static_cast<std::int64_t>(quarters) & 3) {
        case 0:
            return {sine, cosine};
        case 1:
            return {cosine, -sine};
        case 2:
            return {-sine, -cosine};
        default:
            return {-cosine, sine};
    }
}

}  // namespace tilewise::elementary

#endif

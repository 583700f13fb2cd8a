#include "reference_math.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "contract.hpp"

// Each function is written once, for f32 and f64. std::fma is a call into the C library on the x86-64
// baseline: compile the loops for FMA3 as well. The result is the same, since a fused multiply-add has one
// answer. Some sanitizers are not ready yet when the loader chooses between the two.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define TILEWISE_SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(thread_sanitizer)
#        define TILEWISE_SANITIZED 1
#    endif
#endif
#if defined(__x86_64__) && defined(__ELF__) && defined(__gnu_linux__) && !defined(TILEWISE_SANITIZED)
#    define TILEWISE_FMA_CLONES __attribute__((target_clones("default", "arch=haswell")))
#else
#    define TILEWISE_FMA_CLONES
#endif
#define TILEWISE_INLINE inline __attribute__((always_inline))

namespace tilewise::reference {

namespace formula {

template <class Real>
using integer = std::conditional_t<std::is_same_v<Real, double>, std::int64_t, std::int32_t>;

template <class Real>
TILEWISE_INLINE Real dot(const Real* key, const Real* query, std::int64_t head_dim) {
    Real s = 0;
    for (std::int64_t i = 0; i < head_dim; ++i) { s = std::fma(key[i], query[i], s); }
    return s;
}

template <class Real>
TILEWISE_INLINE Real power_of_two(Real k, Real lowest) {
    if (std::isnan(k)) { return k; }
    return k < lowest ? Real{0} : std::ldexp(Real{1}, static_cast<int>(k));
}

/// By Horner's rule.
template <class Real, int terms>
TILEWISE_INLINE Real polynomial(Real x, const Real (&coefficients)[terms]) {
    Real p = 0;
    for (int n = terms - 1; n >= 0; --n) { p = std::fma(x, p, coefficients[n]); }
    return p;
}

/// 2^f for |f| <= 1.
template <class Real, int terms>
TILEWISE_INLINE Real exp2_by(const Real (&coefficients)[terms], Real f) {
    return std::fma(f, polynomial(f, coefficients), Real{1});
}

template <class Real, int terms>
TILEWISE_INLINE Real weight(Real t, Real c, Real chunk_maximum, const Real (&coefficients)[terms]) {
    using constant = contract::constants<Real>;
    const bool careful = std::fabs(chunk_maximum) >= constant::careful_maximum;
    Real r = std::fma(t, c, constant::rounding_shift) - constant::rounding_shift;
    if (careful) { r = std::nearbyint(t * c); }
    Real f = std::fma(t, c, -r);
    if (careful) { f = f > 1 ? 1 : f < -1 ? -1 : f; }
    const Real exponent = r - chunk_maximum;
    if (exponent < constant::weight_min_exponent) { return 0; }
    return exp2_by(coefficients, f) * power_of_two(exponent, constant::weight_min_exponent);
}

template <class Real>
TILEWISE_INLINE void add_value(const Real* value, Real p, std::int64_t value_dim, Real* o) {
    for (std::int64_t x = 0; x < value_dim; ++x) { o[x] = std::fma(value[x], p, o[x]); }
}

template <class Real>
TILEWISE_INLINE void fold_sums(Real* row, const Real* chunk, std::int64_t count, Real a, Real b) {
    for (std::int64_t x = 0; x < count; ++x) { row[x] = std::fma(row[x], a, chunk[x] * b); }
}

template <class Real>
TILEWISE_INLINE Real log2_of(Real value) {
    using constant = contract::constants<Real>;
    constexpr int fraction = constant::fraction_bits;
    const auto bits = std::bit_cast<integer<Real>>(value);
    const integer<Real> exponent = (bits - constant::sqrt_half_bits) >> fraction;
    const Real u = std::bit_cast<Real>(bits - exponent * (integer<Real>{1} << fraction)) - 1;
    return std::fma(u, polynomial(u, constant::log2_coefficients), static_cast<Real>(exponent));
}

template <class Real>
TILEWISE_INLINE Real tanh_of(Real value) {
    using constant = contract::constants<Real>;
    const Real x = std::fabs(value);
    if (std::isnan(x)) { return x; }
    const Real square = x * x;
    const Real p = polynomial(square, constant::tanh_coefficients);
    if (x < constant::tanh_small) { return std::copysign(std::fma(x * square, p, x), value); }
    if (x >= constant::tanh_large) { return std::copysign(Real{1}, value); }
    const Real r = std::fma(x, constant::two_log2_e, constant::rounding_shift) - constant::rounding_shift;
    const Real f = std::fma(x, constant::two_log2_e_rest, std::fma(x, constant::two_log2_e, -r));
    const Real power = exp2_by(constant::exp2_coefficients, f) * power_of_two(r, constant::fold_min_exponent);
    return std::copysign(1 - 2 / (power + 1), value);
}

}  // namespace formula

namespace {

/// Subnormal numbers count as zeros of their sign.
float flush(float value) {
    return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}

#if defined(__aarch64__)
/// Rounded to odd: towards zero, and then the last bit says whether something was lost.
float round_to_odd(double value, double lost) {
    if (lost != 0.0) {
        const auto bits = std::bit_cast<std::int64_t>(value);
        value = std::bit_cast<double>((bits - ((value > 0.0) == (lost > 0.0) ? 0 : 1)) | 1);
    }
    auto rounded = static_cast<float>(value);
    if (std::isnan(value) || std::isinf(value) || static_cast<double>(rounded) == value) { return rounded; }
    if (std::fabs(value) >= 0x1p128) { return std::copysign(infinity<float>, rounded); }
    if (std::fabs(static_cast<double>(rounded)) > std::fabs(value)) {
        rounded = std::nextafter(rounded, 0.0F);
    }
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(rounded) | 1U);
}

float add_to_odd(float a, float b) {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    const double sum = x + y;
    const double part = sum - x;
    const double lost = (x - (sum - part)) + (y - part);
    return flush(round_to_odd(sum, std::isfinite(sum) ? lost : 0.0));
}
#endif

}  // namespace

#if defined(__aarch64__)
float add_products(float s, float first_a, float first_b, float second_a, float second_b) {
    const auto product = [](float a, float b) {
        return flush(round_to_odd(static_cast<double>(flush(a)) * static_cast<double>(flush(b)), 0.0));
    };
    return add_to_odd(flush(s), add_to_odd(product(first_a, first_b), product(second_a, second_b)));
}
#else
TILEWISE_FMA_CLONES
float add_products(float s, float first_a, float first_b, float second_a, float second_b) {
    s = flush(std::fma(flush(second_a), flush(second_b), flush(s)));
    return flush(std::fma(flush(first_a), flush(first_b), s));
}
#endif

namespace {

TILEWISE_FMA_CLONES
float dot_of_pairs(const float* key, const float* query, std::int64_t head_dim) {
    float s = 0.0F;
    for (std::int64_t i = 0; i < head_dim; i += 2) {
        const bool whole = i + 1 < head_dim;
        s = add_products(s, key[i], query[i], whole ? key[i + 1] : 0.0F, whole ? query[i + 1] : 0.0F);
    }
    return s;
}

}  // namespace

TILEWISE_FMA_CLONES
float dot(arithmetic how, const float* key, const float* query, std::int64_t head_dim) {
    return how == arithmetic::exact ? formula::dot(key, query, head_dim) : dot_of_pairs(key, query, head_dim);
}
TILEWISE_FMA_CLONES
double dot(arithmetic /*how*/, const double* key, const double* query, std::int64_t head_dim) {
    return formula::dot(key, query, head_dim);
}

TILEWISE_FMA_CLONES
float weight(arithmetic how, float t, float c, float chunk_maximum) {
    using constant = contract::binary32;
    return how == arithmetic::exact ? formula::weight(t, c, chunk_maximum, constant::exp2_coefficients)
                                    : formula::weight(t, c, chunk_maximum, constant::exp2_short_coefficients);
}
TILEWISE_FMA_CLONES
double weight(arithmetic /*how*/, double t, double c, double chunk_maximum) {
    return formula::weight(t, c, chunk_maximum, contract::binary64::exp2_coefficients);
}

TILEWISE_FMA_CLONES
void add_value(const float* value, float p, std::int64_t value_dim, float* o) {
    return formula::add_value(value, p, value_dim, o);
}
TILEWISE_FMA_CLONES
void add_value(const double* value, double p, std::int64_t value_dim, double* o) {
    return formula::add_value(value, p, value_dim, o);
}

TILEWISE_FMA_CLONES
void add_value_pair(const float* first_value, float first_p, const float* second_value, float second_p,
                    std::int64_t value_dim, float* o) {
    for (std::int64_t x = 0; x < value_dim; ++x) {
        const float first = first_value == nullptr ? 0.0F : first_value[x];
        const float second = second_value == nullptr ? 0.0F : second_value[x];
        o[x] = add_products(o[x], first, first_p, second, second_p);
    }
}

TILEWISE_FMA_CLONES
void fold_sums(float* row, const float* chunk, std::int64_t count, float a, float b) {
    return formula::fold_sums(row, chunk, count, a, b);
}
TILEWISE_FMA_CLONES
void fold_sums(double* row, const double* chunk, std::int64_t count, double a, double b) {
    return formula::fold_sums(row, chunk, count, a, b);
}

TILEWISE_FMA_CLONES
float log2_of(float value) { return formula::log2_of(value); }
TILEWISE_FMA_CLONES
double log2_of(double value) { return formula::log2_of(value); }

TILEWISE_FMA_CLONES
float tanh_of(float value) { return formula::tanh_of(value); }
TILEWISE_FMA_CLONES
double tanh_of(double value) { return formula::tanh_of(value); }

float power_of_two(float k, float lowest) { return formula::power_of_two(k, lowest); }
double power_of_two(double k, double lowest) { return formula::power_of_two(k, lowest); }

float canonical(float value) {
    return std::isnan(value) ? std::bit_cast<float>(contract::binary32::canonical_nan_bits) : value;
}
double canonical(double value) {
    return std::isnan(value) ? std::bit_cast<double>(contract::binary64::canonical_nan_bits) : value;
}

}  // namespace tilewise::reference

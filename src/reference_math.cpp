#include "reference_math.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "contract.hpp"

// std::fma is a call into the C library on the x86-64 baseline: compile the loops for FMA3 as well. The
// result is the same, since a fused multiply-add has one answer. Some sanitizers are not ready yet when the
// loader chooses between the two.
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

namespace tilewise::reference {

/// Step 1: the dot product of a key and a query.
TILEWISE_FMA_CLONES
float dot(const float* key, const float* query, std::int64_t head_dim) {
    float s = 0.0F;
    for (std::int64_t i = 0; i < head_dim; ++i) { s = std::fma(key[i], query[i], s); }
    return s;
}

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
    if (std::fabs(value) >= 0x1p128) { return std::copysign(infinity, rounded); }
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

TILEWISE_FMA_CLONES
float dot_of_pairs(const float* key, const float* query, std::int64_t head_dim) {
    float s = 0.0F;
    for (std::int64_t i = 0; i < head_dim; i += 2) {
        const bool whole = i + 1 < head_dim;
        s = add_products(s, key[i], query[i], whole ? key[i + 1] : 0.0F, whole ? query[i + 1] : 0.0F);
    }
    return s;
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

/// 2^k for an integer k; +0 below `lowest`.
float power_of_two(float k, float lowest) {
    if (std::isnan(k)) { return k; }
    return k < lowest ? 0.0F : std::ldexp(1.0F, static_cast<int>(k));
}

/// 2^f for |f| <= 1.
TILEWISE_FMA_CLONES
float exp2_of(float f) {
    float p = 0.0F;
    for (int i = 5; i >= 0; --i) { p = std::fma(f, p, contract::exp2_coefficients[i]); }
    return std::fma(f, p, 1.0F);
}
TILEWISE_FMA_CLONES
float short_exp2_of(float f) {
    float p = 0.0F;
    for (int i = 3; i >= 0; --i) { p = std::fma(f, p, contract::exp2_short_coefficients[i]); }
    return std::fma(f, p, 1.0F);
}

/// Step 3: the weight of one score.
TILEWISE_FMA_CLONES
float weight(arithmetic how, float t, float c, float chunk_maximum) {
    float r = std::fma(t, c, contract::rounding_shift) - contract::rounding_shift;
    if (std::fabs(chunk_maximum) >= contract::careful_maximum) { r = std::nearbyint(t * c); }
    float f = std::fma(t, c, -r);
    if (std::fabs(chunk_maximum) >= contract::careful_maximum) {
        f = f > 1.0F ? 1.0F : f < -1.0F ? -1.0F : f;
    }
    const float exponent = r - chunk_maximum;
    if (exponent < contract::weight_min_exponent) { return 0.0F; }
    const float power = how == arithmetic::exact ? exp2_of(f) : short_exp2_of(f);
    return power * power_of_two(exponent, contract::weight_min_exponent);
}

/// o += p v for one key.
TILEWISE_FMA_CLONES
void add_value(const float* value, float p, std::int64_t value_dim, float* o) {
    for (std::int64_t x = 0; x < value_dim; ++x) { o[x] = std::fma(value[x], p, o[x]); }
}

/// Step 4.
TILEWISE_FMA_CLONES
void fold_sums(float* row, const float* chunk, std::int64_t count, float a, float b) {
    for (std::int64_t x = 0; x < count; ++x) { row[x] = std::fma(row[x], a, chunk[x] * b); }
}

TILEWISE_FMA_CLONES
float log2_of(float value) {
    const auto bits = std::bit_cast<std::int32_t>(value);
    const std::int32_t exponent = (bits - static_cast<std::int32_t>(contract::sqrt_half_bits)) >> 23;
    const float u = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0F;
    float p = contract::log2_coefficients[9];
    for (int i = 8; i >= 0; --i) { p = std::fma(u, p, contract::log2_coefficients[i]); }
    return std::fma(u, p, static_cast<float>(exponent));
}

TILEWISE_FMA_CLONES
float tanh_of(float value) {
    const float x = std::fabs(value);
    if (std::isnan(x)) { return x; }
    const float square = x * x;
    float p = 0.0F;
    for (int n = 4; n >= 0; --n) { p = std::fma(square, p, contract::tanh_coefficients[n]); }
    if (x < contract::tanh_small) { return std::copysign(std::fma(x * square, p, x), value); }
    if (x >= contract::tanh_large) { return std::copysign(1.0F, value); }
    const float r = std::fma(x, contract::two_log2_e, contract::rounding_shift) - contract::rounding_shift;
    const float f = std::fma(x, contract::two_log2_e_rest, std::fma(x, contract::two_log2_e, -r));
    const float power = exp2_of(f) * power_of_two(r, contract::fold_min_exponent);
    return std::copysign(1.0F - 2.0F / (power + 1.0F), value);
}

float canonical(float value) {
    return std::isnan(value) ? std::bit_cast<float>(contract::canonical_nan_bits) : value;
}

}  // namespace tilewise::reference

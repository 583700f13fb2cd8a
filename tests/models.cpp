#include "models.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tilewise_tests {
namespace {

// The row's inputs, copied side by side.
struct row_inputs {
    std::int64_t keys;  // that the row sees
    std::vector<float> q;
    std::vector<std::vector<float>> k;
    std::vector<std::vector<float>> v;
};

std::vector<float> copy_row(const tilewise::const_tensor& from, std::int64_t b, std::int64_t h,
                            std::int64_t t) {
    std::vector<float> made(static_cast<std::size_t>(from.head_dim()));
    for (std::size_t i = 0; i < made.size(); ++i) {
        made[i] = *element(from, b, h, t, static_cast<std::int64_t>(i));
    }
    return made;
}

row_inputs gather(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                  std::int64_t i) {
    row_inputs made{visible_keys(which, i), copy_row(given.q.view(), b, h, i), {}, {}};
    const std::int64_t kv_head = h / (which.heads / which.kv_heads);
    for (std::int64_t j = 0; j < made.keys; ++j) {
        made.k.push_back(copy_row(given.k.view(), b, kv_head, j));
        made.v.push_back(copy_row(given.v.view(), b, kv_head, j));
    }
    return made;
}

float multiply_add(float a, float b, float c, accumulation how) {
    if (how == accumulation::fused) { return std::fma(a, b, c); }
    const volatile float product = a * b;  // volatile: no compiler may fuse the two after all
    return product + c;
}

float dot(const std::vector<float>& key, const std::vector<float>& query, accumulation how) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < key.size(); ++i) { sum = multiply_add(key[i], query[i], sum, how); }
    return sum;
}

// The constants of the arithmetic are stated again here on purpose: who changes them must do it twice.
constexpr float log2_e = 0x1.715476p+0F;
constexpr float ln_2 = 0x1.62e430p-1F;

float two_to_the_fraction(float f) {
    constexpr float coefficients[] = {0x1.41fbbcp-13F,
                                      0x1.5f3e52p-10F,
                                      0x1.3b2d4cp-7F,
                                      0x1.c6aee8p-5F,
                                      0x1.ebfbdcp-3F,
                                      0x1.62e430p-1F,
                                      1.0F};
    float value = 0.0F;
    for (const float coefficient : coefficients) { value = std::fma(value, f, coefficient); }
    return value;
}

float log2_near(float sum) {
    constexpr float coefficients[] = {-0x1.c25a72p-4F, 0x1.7d494ap-3F, -0x1.874be8p-3F, 0x1.a305a6p-3F,
                                      -0x1.eabc88p-3F, 0x1.277e36p-2F, -0x1.715a76p-2F, 0x1.ec7096p-2F,
                                      -0x1.715470p-1F, 0x1.715476p+0F};
    int exponent = 0;
    float x = std::frexp(sum, &exponent);  // [1/2, 1)
    if (x < 0x1.6a09e6p-1F) {              // sqrt(1/2)
        x *= 2.0F;
        exponent -= 1;
    }
    float value = 0.0F;
    for (const float coefficient : coefficients) { value = std::fma(value, x - 1.0F, coefficient); }
    return std::fma(value, x - 1.0F, static_cast<float>(exponent));
}

}  // namespace

std::int64_t visible_keys(const attention_case& which, std::int64_t i) {
    if (which.causal == tilewise::causal::none) { return which.keys; }
    const bool at_bottom = which.causal == tilewise::causal::bottom_right;
    return std::clamp<std::int64_t>(i + 1 + (at_bottom ? which.keys - which.queries : 0), 0, which.keys);
}

exact_row float64_row(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                      std::int64_t i) {
    const row_inputs from = gather(which, given, b, h, i);
    const std::size_t keys = from.k.size();
    std::vector<double> scores(keys);
    std::vector<double> weights(keys);
    double largest = -HUGE_VAL;
    for (std::size_t j = 0; j < keys; ++j) {
        for (std::size_t x = 0; x < from.q.size(); ++x) {
            scores[j] += static_cast<double>(from.k[j][x]) * static_cast<double>(from.q[x]);
        }
        scores[j] *= static_cast<double>(which.scale.value());
        largest = std::max(largest, scores[j]);
    }
    double total = 0.0;
    for (std::size_t j = 0; j < keys; ++j) { total += weights[j] = std::exp(scores[j] - largest); }

    const auto columns = static_cast<std::size_t>(which.value_dim);
    exact_row made{std::vector<double>(columns), std::vector<double>(columns), largest + std::log(total),
                   0.0};
    if (keys == 0) { return made; }
    for (std::size_t x = 0; x < columns; ++x) {
        double size = 0.0;
        for (std::size_t j = 0; j < keys; ++j) {
            made.out[x] += weights[j] / total * static_cast<double>(from.v[j][x]);
            size += std::abs(static_cast<double>(from.v[j][x]));
        }
        made.out_sensitivity[x] = size / static_cast<double>(keys);
        for (std::size_t j = 0; j < keys; ++j) {
            const double distance = std::abs(static_cast<double>(from.v[j][x]) - made.out[x]);
            made.out_sensitivity[x] += weights[j] / total * std::abs(scores[j]) * distance;
        }
    }
    made.lse_sensitivity = 1.0 + std::abs(made.lse);
    for (std::size_t j = 0; j < keys; ++j) {
        made.lse_sensitivity += weights[j] / total * std::abs(scores[j]);
    }
    return made;
}

row ordinary_row(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                 std::int64_t i, accumulation how) {
    const row_inputs from = gather(which, given, b, h, i);
    std::vector<float> scores;
    for (const auto& key : from.k) { scores.push_back(dot(key, from.q, how) * which.scale.value()); }
    float largest = -infinity;
    for (const float score : scores) { largest = std::max(largest, score); }
    float total = 0.0F;
    for (float& score : scores) {
        score = std::exp(score - largest);
        total += score;
    }
    row made{std::vector<float>(static_cast<std::size_t>(which.value_dim)), largest + std::log(total)};
    for (std::size_t j = 0; j < scores.size(); ++j) {
        const float weight = scores[j] / total;
        for (std::size_t x = 0; x < made.out.size(); ++x) {
            made.out[x] = multiply_add(weight, from.v[j][x], made.out[x], how);
        }
    }
    return made;
}

row two_pass_row(const attention_case& which, const inputs& given, std::int64_t b, std::int64_t h,
                 std::int64_t i) {
    const row_inputs from = gather(which, given, b, h, i);
    const float scale =
        which.scale.value_or(static_cast<float>(1.0 / std::sqrt(static_cast<double>(which.key_dim))));
    const bool positive = scale > 0.0F;
    const float c = positive ? static_cast<float>(static_cast<double>(scale) * 0x1.71547652b82fep+0) : log2_e;
    std::vector<float> scores;
    for (const auto& key : from.k) {
        const float score = dot(key, from.q, accumulation::fused);
        scores.push_back(positive ? score : score * scale);
    }
    float m = -infinity;
    for (const float score : scores) { m = std::max(m, std::ceil(score * c)); }

    row made{std::vector<float>(static_cast<std::size_t>(which.value_dim)), -infinity};
    float total = 0.0F;
    for (std::size_t first = 0; first < scores.size(); first += 128) {
        float chunk_total = 0.0F;
        std::vector<float> chunk(made.out.size());
        for (std::size_t j = first; j < std::min(first + 128, scores.size()); ++j) {
            const auto exact = static_cast<double>(scores[j]) * static_cast<double>(c);
            const auto r = static_cast<float>(std::nearbyint(exact));
            const float weight =
                std::ldexp(two_to_the_fraction(std::fma(scores[j], c, -r)), static_cast<int>(r - m));
            chunk_total += weight;
            for (std::size_t x = 0; x < chunk.size(); ++x) {
                chunk[x] = std::fma(from.v[j][x], weight, chunk[x]);
            }
        }
        total += chunk_total;
        for (std::size_t x = 0; x < chunk.size(); ++x) { made.out[x] += chunk[x]; }
    }
    if (total == 0.0F) { return made; }
    for (float& value : made.out) { value = value / total + 0.0F; }
    made.lse = (m + log2_near(total)) * ln_2;
    return made;
}

void for_each_row(const attention_case& which,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
    for (std::int64_t b = 0; b < which.batch; ++b) {
        for (std::int64_t h = 0; h < which.heads; ++h) {
            for (std::int64_t i = 0; i < which.queries; ++i) { visit(b, h, i); }
        }
    }
}

}  // namespace tilewise_tests

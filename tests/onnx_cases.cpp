#include "onnx_cases.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace tilewise_tests {

namespace {

namespace onnx = tilewise::onnx;
using count = std::int64_t;

constexpr float canary = -77777.0F;

std::size_t elements(const shape& extents) {
    return static_cast<std::size_t>(
        std::accumulate(extents.begin(), extents.end(), count{1}, std::multiplies<>()));
}

onnx_tensor full_of(const shape& extents, float value) {
    return {extents, std::vector<float>(elements(extents), value), {}, false};
}

onnx_tensor normal(const shape& extents, random_source& random) {
    onnx_tensor result = full_of(extents, 0);
    std::generate(result.floats.begin(), result.floats.end(), [&] { return random.normal(); });
    return result;
}

/// A third of the keys masked.
onnx_tensor make_mask(const onnx_case& which, random_source& random) {
    onnx_tensor result = normal(*which.mask, random);
    result.is_boolean = which.mask_is_boolean;
    for (float& value : result.floats) {
        const bool is_masked = random.between(0, 2) == 0;
        if (is_masked) { value = -infinity; }
        result.booleans.push_back(is_masked ? 0 : static_cast<std::uint8_t>(random.between(1, 255)));
    }
    return result;
}

/// [batch, heads, tokens, dim], or the shape of rank 3 with the same elements in another order.
shape tokens_shape(const onnx_case& which, count heads, count tokens, count dim) {
    if (which.has_rank_3) { return {which.batch, tokens, heads * dim}; }
    return {which.batch, heads, tokens, dim};
}

/// Element (b, h, t, x) of a tensor of rank 4, or of rank 3 with `heads` heads.
double at(const onnx_tensor& from, count heads, count b, count h, count t, count x) {
    const shape& e = from.extents;
    const count index = e.size() == 4 ? ((b * e[1] + h) * e[2] + t) * e[3] + x
                                      : (b * e[1] + t) * e[2] + h * (e[2] / heads) + x;
    return from.floats[static_cast<std::size_t>(index)];
}

class model {
public:
    model(const onnx_case& which, const onnx_tensors& tensors) : c_(which), t_(tensors) {}

    [[nodiscard]] std::string first_difference() const {
        for (count b = 0; b < c_.batch; ++b) {
            for (count h = 0; h < c_.q_heads; ++h) {
                for (count i = 0; i < c_.queries; ++i) {
                    const std::string wrong = row_difference(b, h, i);
                    if (!wrong.empty()) {
                        return "batch " + std::to_string(b) + " head " + std::to_string(h) + " query " +
                               std::to_string(i) + ": " + wrong;
                    }
                }
            }
        }
        return {};
    }

private:
    const onnx_case& c_;
    const onnx_tensors& t_;

    [[nodiscard]] double token(const onnx_tensor& past, const onnx_tensor& added, count b, count h, count j,
                               count x) const {
        const count before = c_.past.value_or(0);
        const count kv_head = h / (c_.q_heads / c_.kv_heads);
        return j < before ? at(past, c_.kv_heads, b, kv_head, j, x)
                          : at(added, c_.kv_heads, b, kv_head, j - before, x);
    }

    /// What the mask adds: 0 or -inf for a boolean one.
    [[nodiscard]] double mask_at(count b, count h, count i, count j) const {
        if (!c_.mask.has_value()) { return 0; }
        if (j >= c_.mask->back()) { return -HUGE_VAL; }
        const count where[] = {b, h, i, j};
        count index = 0;
        const std::size_t rank = c_.mask->size();
        for (std::size_t a = 0; a < rank; ++a) {
            const count extent = (*c_.mask)[a];
            index = index * extent + (a + 1 < rank && extent == 1 ? 0 : where[4 - rank + a]);
        }
        const auto element = static_cast<std::size_t>(index);
        if (c_.mask_is_boolean) { return t_.mask.booleans[element] != 0 ? 0 : -HUGE_VAL; }
        return t_.mask.floats[element];
    }

    [[nodiscard]] bool is_visible(count b, count i, count j) const {
        count position = i + c_.past.value_or(0);
        if (c_.lengths.has_value()) {
            const count length = (*c_.lengths)[static_cast<std::size_t>(b)];
            if (j >= length) { return false; }
            position = i + length - c_.queries;
        }
        if (c_.set.is_causal != 0 && j > position) { return false; }
        if (c_.set.left_window_size >= 0 && j < position - c_.set.left_window_size) { return false; }
        return c_.set.right_window_size < 0 || j <= position + c_.set.right_window_size;
    }

    [[nodiscard]] std::string row_difference(count b, count h, count i) const {
        std::vector<double> stages[4];
        const double scale = c_.set.scale.value_or(1 / std::sqrt(static_cast<float>(c_.key_dim)));
        const double cap = c_.set.softcap;
        const double sink = c_.has_sinks ? t_.sinks.floats[static_cast<std::size_t>(h)] : -HUGE_VAL;
        double largest = sink;
        for (count j = 0; j < c_.keys(); ++j) {
            double dot = 0;
            for (count x = 0; x < c_.key_dim; ++x) {
                dot += at(t_.q, c_.q_heads, b, h, i, x) * token(t_.past_key, t_.k, b, h, j, x);
            }
            stages[0].push_back(dot * scale);
            stages[1].push_back(cap > 0 ? cap * std::tanh(stages[0].back() / cap) : stages[0].back());
            stages[2].push_back(is_visible(b, i, j) ? stages[1].back() + mask_at(b, h, i, j) : -HUGE_VAL);
            largest = std::max(largest, stages[2].back());
        }
        double sum = std::isinf(sink) ? 0 : std::exp(sink - largest);
        for (const double score : stages[2]) {
            stages[3].push_back(std::isinf(score) ? 0 : std::exp(score - largest));
            sum += stages[3].back();
        }
        for (double& weight : stages[3]) { weight /= sum > 0 ? sum : 1; }
        return compare(b, h, i, stages[3], stages[static_cast<std::size_t>(c_.set.qk_matmul_output_mode)]);
    }

    [[nodiscard]] std::string compare(count b, count h, count i, const std::vector<double>& weights,
                                      const std::vector<double>& scores) const {
        for (count x = 0; x < c_.value_dim; ++x) {
            double want = 0;
            for (count j = 0; j < c_.keys(); ++j) {
                want += weights[static_cast<std::size_t>(j)] * token(t_.past_value, t_.v, b, h, j, x);
            }
            const double got = at(t_.y, c_.q_heads, b, h, i, x);
            if (!(std::abs(got - want) <= 1e-5)) {
                return "y is " + std::to_string(got) + ", not " + std::to_string(want);
            }
        }
        for (count j = 0; c_.wants_qk && j < c_.keys(); ++j) {
            const double want = scores[static_cast<std::size_t>(j)];
            const double got = at(t_.qk, c_.q_heads, b, h, i, j);
            if (std::isinf(want) ? got != want : !(std::abs(got - want) <= 1e-5)) {
                return "qk of key " + std::to_string(j) + " is " + std::to_string(got) + ", not " +
                       std::to_string(want);
            }
        }
        return {};
    }
};

/// Whether a present is the past followed by the new tokens.
bool is_concatenated(const onnx_case& which, const onnx_tensor& past, const onnx_tensor& added,
                     const onnx_tensor& present) {
    const count before = which.past.value_or(0);
    for (count b = 0; b < which.batch; ++b) {
        for (count h = 0; h < which.kv_heads; ++h) {
            for (count j = 0; j < which.keys(); ++j) {
                for (count x = 0; x < present.extents[3]; ++x) {
                    const double want = j < before ? at(past, which.kv_heads, b, h, j, x)
                                                   : at(added, which.kv_heads, b, h, j - before, x);
                    if (at(present, which.kv_heads, b, h, j, x) != want) { return false; }
                }
            }
        }
    }
    return true;
}

}  // namespace

std::string show(const onnx_case& which) {
    const auto number = [](const char* name, count value) { return name + std::to_string(value); };
    std::string text =
        number("batch ", which.batch) + number(" heads ", which.q_heads) + number("/", which.kv_heads) +
        number(" queries ", which.queries) + number(" past ", which.past.value_or(-1)) +
        number(" new ", which.new_keys) + number(" dims ", which.key_dim) + number("/", which.value_dim) +
        number(" rank ", which.has_rank_3 ? 3 : 4) + number(" causal ", which.set.is_causal) +
        number(" window ", which.set.left_window_size) + number("/", which.set.right_window_size) +
        number(" mode ", which.set.qk_matmul_output_mode);
    if (which.mask.has_value()) {
        text += which.mask_is_boolean ? " boolean mask" : " float mask";
        for (const count extent : *which.mask) { text += number(" ", extent); }
    }
    for (const count length : which.lengths.value_or(shape{})) { text += number(" length ", length); }
    return text;
}

onnx::const_array onnx_tensor::view() const {
    if (is_boolean) { return {booleans.data(), onnx::data_type::boolean, extents, {}}; }
    return {floats.data(), onnx::data_type::float32, extents, {}};
}

onnx::array onnx_tensor::view() { return {floats.data(), onnx::data_type::float32, extents, {}}; }

onnx_tensors make_tensors(const onnx_case& which) {
    random_source random(which.seed);
    onnx_tensors t;
    t.q = normal(tokens_shape(which, which.q_heads, which.queries, which.key_dim), random);
    t.k = normal(tokens_shape(which, which.kv_heads, which.new_keys, which.key_dim), random);
    t.v = normal(tokens_shape(which, which.kv_heads, which.new_keys, which.value_dim), random);
    const count past = which.past.value_or(0);
    t.past_key = normal({which.batch, which.kv_heads, past, which.key_dim}, random);
    t.past_value = normal({which.batch, which.kv_heads, past, which.value_dim}, random);
    if (which.mask.has_value()) { t.mask = make_mask(which, random); }
    t.sinks = normal({which.q_heads}, random);
    t.lengths_shape = {which.batch};
    t.y = full_of(tokens_shape(which, which.q_heads, which.queries, which.value_dim), canary);
    t.present_key = full_of({which.batch, which.kv_heads, which.keys(), which.key_dim}, canary);
    t.present_value = full_of({which.batch, which.kv_heads, which.keys(), which.value_dim}, canary);
    t.qk = full_of({which.batch, which.q_heads, which.queries, which.keys()}, canary);
    return t;
}

onnx_call make_call(const onnx_case& which, onnx_tensors& tensors) {
    const onnx_tensors& read = tensors;
    onnx_call call{{.q = read.q.view(), .k = read.k.view(), .v = read.v.view()}, which.set, {}};
    if (which.has_rank_3) {
        call.set.q_num_heads = which.q_heads;
        call.set.kv_num_heads = which.kv_heads;
    }
    if (which.mask.has_value()) { call.given.attn_mask = read.mask.view(); }
    if (which.past.has_value()) {
        call.given.past_key = read.past_key.view();
        call.given.past_value = read.past_value.view();
    }
    if (which.lengths.has_value()) {
        call.given.nonpad_kv_seqlen =
            onnx::const_array{which.lengths->data(), onnx::data_type::int64, read.lengths_shape, {}};
    }
    if (which.has_sinks) { call.given.head_sink = read.sinks.view(); }
    call.wanted.y = tensors.y.view();
    if (which.wants_present) {
        call.wanted.present_key = tensors.present_key.view();
        call.wanted.present_value = tensors.present_value.view();
    }
    if (which.wants_qk) { call.wanted.qk_matmul_output = tensors.qk.view(); }
    return call;
}

std::string difference_from_model(const onnx_case& which, const onnx_tensors& tensors) {
    if (which.wants_present &&
        !(is_concatenated(which, tensors.past_key, tensors.k, tensors.present_key) &&
          is_concatenated(which, tensors.past_value, tensors.v, tensors.present_value))) {
        return "present is not the past and the new tokens";
    }
    return model(which, tensors).first_difference();
}

void check_model(const onnx_case& which) {
    INFO(show(which));
    onnx_tensors tensors = make_tensors(which);
    make_call(which, tensors).run();
    CHECK(difference_from_model(which, tensors) == "");
}

}  // namespace tilewise_tests

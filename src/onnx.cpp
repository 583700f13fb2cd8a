// The Attention operator of ONNX: check the arguments, put past and new keys together, compute.

#include <tilewise/onnx.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <tilewise/attention.hpp>
#include <vector>

#include "onnx_arguments.hpp"
#include "onnx_scores.hpp"

namespace tilewise::onnx {

namespace {

void copy(const const_tensor& from, const tensor& to) {
    if (is_in_place(from, to)) { return; }
    for (std::int64_t b = 0; b < from.batch(); ++b) {
        for (std::int64_t h = 0; h < from.heads(); ++h) {
            for (std::int64_t t = 0; t < from.tokens(); ++t) {
                const float* source = static_cast<const float*>(from.data) + b * from.strides[0] +
                                      h * from.strides[1] + t * from.strides[2];
                float* target =
                    static_cast<float*>(to.data) + b * to.strides[0] + h * to.strides[1] + t * to.strides[2];
                if (from.strides[3] == 1 && to.strides[3] == 1) {
                    std::copy_n(source, from.head_dim(), target);
                    continue;
                }
                for (std::int64_t i = 0; i < from.head_dim(); ++i) {
                    target[i * to.strides[3]] = source[i * from.strides[3]];
                }
            }
        }
    }
}

void concatenate(const const_tensor& past, const const_tensor& added, const tensor& to) {
    if (past.tokens() > 0) { copy(past, to.slice(axis::tokens, 0, past.tokens())); }
    copy(added, to.slice(axis::tokens, past.tokens(), added.tokens()));
}

/// All keys, or all values: the new ones if there is no past, else the present, or temporary memory for it.
class all_tokens {
public:
    all_tokens(const const_tensor& past, const const_tensor& added, const std::optional<tensor>& present)
        : past_(past), added_(added), target_(present) {
        const std::int64_t tokens = past.tokens() + added.tokens();
        if (past.tokens() > 0 && !present.has_value()) {
            std::size_t count = 1;
            for (const std::int64_t extent : {added.batch(), added.heads(), tokens, added.head_dim()}) {
                if (__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count)) {
                    throw std::bad_alloc();
                }
            }
            memory_ = std::make_unique_for_overwrite<float[]>(count);
            target_ = bhsd(memory_.get(), added.batch(), added.heads(), tokens, added.head_dim());
        }
    }

    [[nodiscard]] const_tensor view() const { return past_.tokens() > 0 ? const_tensor(*target_) : added_; }

    void write() const {
        if (target_.has_value()) { concatenate(past_, added_, *target_); }
    }

private:
    const_tensor past_;
    const_tensor added_;
    std::optional<tensor> target_;
    std::unique_ptr<float[]> memory_;
};

}  // namespace

void attention(const inputs& given, const attributes& set, const outputs& wanted, const resources& use) {
    const call c = check_arguments(given, set, wanted, use);
    const all_tokens keys(c.past_key, c.k, c.present_key);
    const all_tokens values(c.past_value, c.v, c.present_value);
    const const_tensor k = keys.view().slice(axis::tokens, 0, c.reached_keys);
    const const_tensor v = values.view().slice(axis::tokens, 0, c.reached_keys);
    options how = c.how;
    std::vector<std::int64_t> rows;
    const bool wants_weights = c.qk.has_value() && c.qk_mode == 3;
    if (wants_weights) { add_weights(c, rows, how); }
    // What is left to refuse is refused now, before anything is written.
    static_cast<void>(plan_attention(c.q, k, v, c.y, how));
    keys.write();
    values.write();
    tilewise::attention(c.q, k, v, c.y, how);
    if (!c.qk.has_value()) { return; }
    if (wants_weights) {
        finish_weights(c);
    } else {
        write_scores(c, keys.view());
    }
}

}  // namespace tilewise::onnx

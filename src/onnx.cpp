// The Attention operator of ONNX: check the arguments, put past and new keys together, compute.

#include <tilewise/onnx.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tilewise/attention.hpp>

#include "heap_array.hpp"
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
        : past_(past), added_(added), target_(present) {}

    [[nodiscard]] bool allocate() {
        if (past_.tokens() == 0 || target_.has_value()) { return true; }
        const std::int64_t tokens = past_.tokens() + added_.tokens();
        if (!memory_.allocate({added_.batch(), added_.heads(), tokens, added_.head_dim()})) { return false; }
        target_ = bhsd(memory_.data(), added_.batch(), added_.heads(), tokens, added_.head_dim());
        return true;
    }

    [[nodiscard]] const_tensor view() const { return past_.tokens() > 0 ? const_tensor(*target_) : added_; }

    void write() const {
        if (target_.has_value()) { concatenate(past_, added_, *target_); }
    }

private:
    const_tensor past_;
    const_tensor added_;
    std::optional<tensor> target_;
    heap_array<float> memory_;
};

}  // namespace

status try_attention(const inputs& given, const attributes& set, const outputs& wanted,
                     const resources& use) noexcept {
    call c{};
    if (!check_arguments(given, set, wanted, use, c)) { return status_of(false); }
    all_tokens keys(c.past_key, c.k, c.present_key);
    all_tokens values(c.past_value, c.v, c.present_value);
    if (!keys.allocate() || !values.allocate()) { return status_of(false); }
    const const_tensor k = keys.view().slice(axis::tokens, 0, c.reached_keys);
    const const_tensor v = values.view().slice(axis::tokens, 0, c.reached_keys);
    options how = c.how;
    heap_array<std::int64_t> rows;
    const bool wants_weights = c.qk.has_value() && c.qk_mode == 3;
    if (wants_weights && !add_weights(c, rows, how)) { return status_of(false); }
    // What is left to refuse is refused now, before anything is written.
    plan ignored;
    if (const status planned = try_plan_attention(c.q, k, v, c.y, how, ignored); !planned.is_ok()) {
        return planned;
    }
    keys.write();
    values.write();
    if (const status done = tilewise::try_attention(c.q, k, v, c.y, how); !done.is_ok()) { return done; }
    if (wants_weights) { finish_weights(c); }
    return status_of(wants_weights || !c.qk.has_value() || write_scores(c, keys.view()));
}

void attention(const inputs& given, const attributes& set, const outputs& wanted, const resources& use) {
    raise_unless(try_attention(given, set, wanted, use));
}

}  // namespace tilewise::onnx

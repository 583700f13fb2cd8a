// The Attention operator of ONNX (opsets 23 to 25, as onnx 1.23 describes it) as one function, for runtimes:
// its inputs, attributes and outputs under their own names, computed by tilewise::attention.

#ifndef TILEWISE_ONNX_HPP
#define TILEWISE_ONNX_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include <tilewise/export.hpp>
#include <tilewise/status.hpp>

namespace tilewise::onnx {

/// Element types, numbered as in ONNX's TensorProto: a runtime casts the number that it has.
enum class data_type : std::int32_t {
    float32 = 1,
    uint8 = 2,
    int8 = 3,
    uint16 = 4,
    int16 = 5,
    int32 = 6,
    int64 = 7,
    boolean = 9,  ///< one byte, true if it is not 0
    float16 = 10,
    float64 = 11,
    uint32 = 12,
    uint64 = 13,
    bfloat16 = 16
};

/// A tensor as a runtime has it; `Void` is `void` (may be written) or `const void`. Neither the elements nor
/// the shape are owned: the caller keeps both alive during the call.
template <class Void>
struct basic_array {
    Void* data = nullptr;  ///< null is allowed if there are no elements
    data_type type = data_type::float32;
    std::span<const std::int64_t> shape = {};
    /// In elements, one per axis. Empty: row-major without gaps, as ONNX has it.
    std::span<const std::int64_t> strides = {};

    /// What may be written may be read.
    [[nodiscard]] constexpr operator basic_array<const void>() const requires(!std::is_const_v<Void>) {
        return {data, type, shape, strides};
    }
};
using array = basic_array<void>;
using const_array = basic_array<const void>;

/// What the operator reads. The operator's letters: batch B, query heads Hq, key heads Hkv (a divisor of Hq),
/// query tokens Sq, new keys Skv, past keys P, all keys T = P + Skv. float32, unless stated otherwise.
struct inputs {
    /// 4-D, [B, Hq, Sq, head_dim], [B, Hkv, Skv, head_dim], [B, Hkv, Skv, value_dim]; or 3-D, with
    /// q_num_heads and kv_num_heads: [B, Sq, Hq * head_dim], [B, Skv, Hkv * head_dim],
    /// [B, Skv, Hkv * value_dim]. All of the same rank.
    const_array q = {};
    const_array k = {};
    const_array v = {};

    /// boolean (true: the key takes part) or float32 (added to the scores; -inf masks, and so do numbers
    /// below -2.3e38, the lowest float among them). Of rank 1 to 4, and broadcast to [B, Hq, Sq, T] as ONNX
    /// broadcasts, but for the last axis: keys beyond its end are masked. It must reach as far as the largest
    /// nonpad_kv_seqlen. Integers, which the operator's type list has but its text gives no meaning, are
    /// refused.
    std::optional<const_array> attn_mask = std::nullopt;

    /// Keys and values before k and v: [B, Hkv, P, head_dim] and [B, Hkv, P, value_dim]. Both or none.
    std::optional<const_array> past_key = std::nullopt;
    std::optional<const_array> past_value = std::nullopt;

    /// int64, [B], without gaps: how many keys of each batch entry count, from 0 to Skv; the others are
    /// padding, which is never read (but see outputs::qk_matmul_output). Not together with past or present.
    std::optional<const_array> nonpad_kv_seqlen = std::nullopt;

    /// Not in ONNX: [Hq], without gaps, a score per query head that joins its softmax and has no value
    /// (options::sinks).
    std::optional<const_array> head_sink = std::nullopt;
};

/// The operator's attributes; the defaults are the operator's.
struct attributes {
    /// 1: query i sees key j only if j <= i + offset. The offset is P with a past, nonpad_kv_seqlen[b] - Sq
    /// with nonpad_kv_seqlen, and 0 otherwise. If it is negative, the first queries see no key.
    std::int64_t is_causal = 0;

    /// Needed if q, k and v are 3-D. With 4-D ones they may be given, and must agree with the shapes.
    std::optional<std::int64_t> q_num_heads = std::nullopt;
    std::optional<std::int64_t> kv_num_heads = std::nullopt;

    /// What qk_matmul_output holds: 0, the scaled products; 1, after the soft cap; 2, after attn_mask and all
    /// other masks; 3, the weights, after the softmax.
    std::int64_t qk_matmul_output_mode = 0;

    /// Factor on the products of queries and keys, finite; 1 / sqrt(head_dim) by default.
    std::optional<float> scale = std::nullopt;

    /// Scores become softcap * tanh(score / softcap), before attn_mask; 0: no cap. Finite, at least 0.
    float softcap = 0.0F;

    /// A TensorProto number: 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16). Checked, and without
    /// effect: the softmax, like all else, is float32.
    std::optional<std::int64_t> softmax_precision = std::nullopt;

    /// Opset 25: query i, at position p = i + offset (see is_causal), sees keys p - left_window_size up to
    /// p + right_window_size; -1 leaves that side open.
    std::int64_t left_window_size = -1;
    std::int64_t right_window_size = -1;
};

/// What the operator writes; float32.
struct outputs {
    /// [B, Hq, Sq, value_dim] if q is 4-D, [B, Sq, Hq * value_dim] if it is 3-D. Needed.
    array y = {};

    /// The past followed by the new keys and values: [B, Hkv, T, head_dim] and [B, Hkv, T, value_dim]. Both
    /// or none. The past may lie in them already, as their first P tokens with the same data and strides, as
    /// may k and v as their last: nothing is copied then.
    std::optional<array> present_key = std::nullopt;
    std::optional<array> present_value = std::nullopt;

    /// [B, Hq, Sq, T]; see attributes::qk_matmul_output_mode. Masked keys are -inf in mode 2 and 0 in mode 3;
    /// modes 0 and 1 know no masks, and read padded keys, too. This is the matrix that Tilewise otherwise
    /// avoids: modes 0 to 2 cost a second pass over the keys and 4 bytes per query row, mode 3 computes the
    /// weights again and allocates 8 bytes per query token. y keeps its bits.
    std::optional<array> qk_matmul_output = std::nullopt;
};

/// See the members of tilewise::options with these names.
struct resources {
    int threads = 0;
    std::size_t scratch_budget = 0;
};

/// Computes the Attention operator: y = softmax(cap(scale * Q K^T) + attn_mask, masks) V with the keys and
/// values of past and new tokens, for every batch entry and query head, with the arithmetic and the bits of
/// tilewise::attention. A query that sees no key gives 0, in y and in weights.
///
/// Only float32 for now: q, k, v, past, present, y and qk_matmul_output of another type are refused, and so
/// is a v of another type than q.
///
/// Throws std::invalid_argument, naming the operator's input, attribute or output, what was given and what is
/// allowed, before anything is written; std::bad_alloc if memory cannot be had (outputs may have been written
/// in part then). Outputs must overlap neither each other nor inputs, but for what present says.
///
/// Inputs are views and are not copied, with one exception: if there is a past and no present is wanted, past
/// and new keys and values are put together in temporary memory of 4 * B * Hkv * T * (head_dim + value_dim)
/// bytes. Besides, it allocates what tilewise::attention does and what qk_matmul_output says. Thread-safe.
TILEWISE_API void attention(const inputs& given, const attributes& set, const outputs& wanted,
                            const resources& use = {});

/// The same, and returns what that throws (status.hpp).
TILEWISE_API status try_attention(const inputs& given, const attributes& set, const outputs& wanted,
                                  const resources& use = {}) noexcept;

}  // namespace tilewise::onnx

#endif

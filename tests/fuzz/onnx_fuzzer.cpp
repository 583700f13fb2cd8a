// Whatever a runtime describes, the ONNX operator refuses it and writes nothing, or computes within its
// outputs, with the bits of the reference on every instruction set.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <tilewise/onnx.hpp>
#include <vector>

#include "agreement.hpp"
#include "hostile.hpp"
#include "onnx_oracle.hpp"

using namespace tilewise_tests;

namespace {

namespace onnx = tilewise::onnx;
using count = std::int64_t;
using numbers = std::vector<count>;

/// A call whose arrays lie in an arena, and their shapes and strides here.
struct onnx_call {
    onnx::inputs given;
    onnx::attributes set;
    onnx::outputs wanted;
    onnx::resources use;
    std::deque<numbers> shapes;
};

std::size_t bytes_of(onnx::data_type type) {
    switch (type) {
        case onnx::data_type::boolean:
        case onnx::data_type::int8:
        case onnx::data_type::uint8:
            return 1;
        case onnx::data_type::int64:
        case onnx::data_type::uint64:
        case onnx::data_type::float64:
            return 8;
        default:
            return 4;
    }
}

/// An array in the next free part of the arena; then, at times, with something changed about it.
template <class Array = onnx::const_array>
Array make(onnx_call& call, byte_source& bytes, arena& memory, const numbers& shape,
           onnx::data_type type = onnx::data_type::float32) {
    count elements = 1;
    for (const count extent : shape) { elements *= extent; }
    numbers& kept = call.shapes.emplace_back(shape);
    Array made;
    made.data = memory.take(static_cast<std::size_t>(elements) * bytes_of(type) + 4);
    made.type = type;
    const std::uint8_t harm = bytes.byte();
    if (harm >= 240 && !kept.empty()) { kept[harm % kept.size()] = hostile_number(bytes); }
    if (harm / 8 == 29) { kept.resize(static_cast<std::size_t>(bytes.between(0, 5)), 1); }
    if (harm / 8 == 28) { made.data = memory.hostile_address(bytes); }
    if (harm / 8 == 27) { made.type = static_cast<onnx::data_type>(bytes.between(0, 17)); }
    if (harm / 8 == 26) {
        numbers& strides = call.shapes.emplace_back(numbers(kept.size() + (harm == 208 ? 1 : 0)));
        for (count& stride : strides) { stride = hostile_number(bytes); }
        made.strides = strides;
    }
    made.shape = kept;
    return made;
}

/// Lengths in the arena, most of them no more than `most`.
void make_lengths(onnx_call& call, byte_source& bytes, arena& memory, count batch, count most) {
    onnx::const_array made = make(call, bytes, memory, {batch}, onnx::data_type::int64);
    for (count b = 0; b < batch; ++b) {
        const count length = bytes.one_in(16) ? hostile_number(bytes) : bytes.between(0, most);
        const auto offset = reinterpret_cast<std::uintptr_t>(made.data) -
                            reinterpret_cast<std::uintptr_t>(memory.data()) +
                            8 * static_cast<std::uintptr_t>(b);
        if (offset <= arena::size - sizeof length) {
            std::copy_n(reinterpret_cast<const std::byte*>(&length), sizeof length, memory.data() + offset);
        }
    }
    call.given.nonpad_kv_seqlen = made;
}

void choose_attributes(onnx::attributes& set, byte_source& bytes) {
    set.is_causal = bytes.between(0, 17) % 3 == 1 ? 1 : 0;
    if (bytes.one_in(32)) { set.is_causal = hostile_number(bytes); }
    if (bytes.one_in(6)) { set.scale = bytes.pick(std::array{0.5F, -1.0F, 0.0F, 1e38F}); }
    if (bytes.one_in(6)) { set.softcap = bytes.pick(std::array{30.0F, -1.0F, 1e-40F, 1.0F}); }
    if (bytes.one_in(6)) { set.left_window_size = hostile_number(bytes); }
    if (bytes.one_in(6)) { set.right_window_size = hostile_number(bytes); }
    if (bytes.one_in(16)) { set.softmax_precision = bytes.pick(std::array<count, 4>{1, 10, 16, 2}); }
    set.qk_matmul_output_mode = bytes.one_in(32) ? hostile_number(bytes) : bytes.between(0, 3);
}

struct sizes {
    count batch, heads, kv_heads, queries, keys, past, key_dim, value_dim;
};

void choose_optional_inputs(onnx_call& call, byte_source& bytes, arena& memory, const sizes& s) {
    if (s.past >= 0) {
        call.given.past_key = make(call, bytes, memory, {s.batch, s.kv_heads, s.past, s.key_dim});
        if (!bytes.one_in(32)) {
            call.given.past_value = make(call, bytes, memory, {s.batch, s.kv_heads, s.past, s.value_dim});
        }
    } else if (bytes.one_in(4)) {
        make_lengths(call, bytes, memory, s.batch, s.keys);
    }
    const count all = s.keys + std::max<count>(s.past, 0);
    if (bytes.one_in(3)) {
        numbers shape = {bytes.one_in(2) ? 1 : s.batch, bytes.one_in(2) ? 1 : s.heads, s.queries,
                         bytes.one_in(4) ? bytes.between(0, all) : all};
        shape.erase(shape.begin(), shape.begin() + bytes.between(0, 6) % 4);
        const auto type = bytes.one_in(2) ? onnx::data_type::boolean : onnx::data_type::float32;
        call.given.attn_mask = make(call, bytes, memory, shape, type);
    }
    if (bytes.one_in(6)) { call.given.head_sink = make(call, bytes, memory, {s.heads}); }
}

void choose_outputs(onnx_call& call, byte_source& bytes, arena& memory, const sizes& s, bool has_rank_3) {
    const count all = s.keys + std::max<count>(s.past, 0);
    const numbers y = has_rank_3 ? numbers{s.batch, s.queries, s.heads * s.value_dim}
                                 : numbers{s.batch, s.heads, s.queries, s.value_dim};
    call.wanted.y = make<onnx::array>(call, bytes, memory, y);
    if (bytes.one_in(3)) {
        call.wanted.present_key =
            make<onnx::array>(call, bytes, memory, {s.batch, s.kv_heads, all, s.key_dim});
        if (!bytes.one_in(32)) {
            call.wanted.present_value =
                make<onnx::array>(call, bytes, memory, {s.batch, s.kv_heads, all, s.value_dim});
        }
        // The past may lie in its place already.
        if (call.given.past_key && call.given.past_value && call.wanted.present_value && bytes.one_in(3)) {
            numbers& strides = call.shapes.emplace_back(
                numbers{s.kv_heads * all * s.key_dim, all * s.key_dim, s.key_dim, 1});
            call.given.past_key->data = call.wanted.present_key->data;
            call.given.past_key->strides = strides;
        }
    }
    if (bytes.one_in(3)) {
        call.wanted.qk_matmul_output =
            make<onnx::array>(call, bytes, memory, {s.batch, s.heads, s.queries, all});
    }
}

void choose(onnx_call& call, byte_source& bytes, arena& memory) {
    memory.fill(bytes.byte());
    sizes s{};
    s.batch = bytes.one_in(3) ? bytes.between(0, 2) : 1;
    s.kv_heads = bytes.one_in(3) ? bytes.between(0, 2) : 1;
    s.heads = s.kv_heads * bytes.between(1, 2);
    s.queries = bytes.between(0, 5);
    s.keys = bytes.between(0, 6);
    s.past = bytes.one_in(3) ? bytes.between(0, 4) : -1;
    s.key_dim = bytes.between(0, 5);
    s.value_dim = bytes.between(0, 5);
    choose_attributes(call.set, bytes);
    const bool has_rank_3 = bytes.one_in(3);
    if (has_rank_3 || bytes.one_in(8)) {
        call.set.q_num_heads = bytes.one_in(16) ? hostile_number(bytes) : s.heads;
        call.set.kv_num_heads = bytes.one_in(16) ? hostile_number(bytes) : s.kv_heads;
    }
    const auto shape = [&](count heads, count tokens, count dim) {
        return has_rank_3 ? numbers{s.batch, tokens, heads * dim} : numbers{s.batch, heads, tokens, dim};
    };
    call.given.q = make(call, bytes, memory, shape(s.heads, s.queries, s.key_dim));
    call.given.k = make(call, bytes, memory, shape(s.kv_heads, s.keys, s.key_dim));
    call.given.v = make(call, bytes, memory, shape(s.kv_heads, s.keys, s.value_dim));
    choose_optional_inputs(call, bytes, memory, s);
    choose_outputs(call, bytes, memory, s, has_rank_3);
    if (bytes.one_in(16)) { call.use.threads = static_cast<int>(hostile_number(bytes)); }
}

/// Rows without gaps, as ONNX has them, where no strides are given.
template <class Array>
described describe(const Array& array) {
    described made{array.data,
                   {array.shape.begin(), array.shape.end()},
                   {array.strides.begin(), array.strides.end()},
                   1,
                   static_cast<count>(bytes_of(array.type))};
    if (!array.strides.empty()) { return made; }
    made.strides.resize(made.extents.size());
    long double stride = 1;
    for (std::size_t a = made.extents.size(); a-- > 0;) {
        made.strides[a] = static_cast<count>(std::min(stride, 0x1p62L));
        stride *= std::max(static_cast<long double>(made.extents[a]), 0.0L);
    }
    return made;
}

std::vector<described> arrays_of(const onnx_call& call) {
    std::vector<described> made = {describe(call.given.q), describe(call.given.k), describe(call.given.v),
                                   describe(call.wanted.y)};
    for (const auto* array : {&call.given.attn_mask, &call.given.past_key, &call.given.past_value,
                              &call.given.nonpad_kv_seqlen, &call.given.head_sink}) {
        if (array->has_value()) { made.push_back(describe(**array)); }
    }
    for (const auto* array :
         {&call.wanted.present_key, &call.wanted.present_value, &call.wanted.qk_matmul_output}) {
        if (array->has_value()) { made.push_back(describe(**array)); }
    }
    return made;
}

/// Marks what may be written.
std::vector<bool> written_bytes(const onnx_call& call, arena& memory) {
    std::vector<bool> marked(arena::size);
    describe(call.wanted.y).count_bytes(memory, marked);
    for (const auto* array :
         {&call.wanted.present_key, &call.wanted.present_value, &call.wanted.qk_matmul_output}) {
        if (array->has_value()) { describe(**array).count_bytes(memory, marked); }
    }
    return marked;
}

void check_writes(const onnx_call& call, arena& memory, const std::vector<std::byte>& before,
                  bool was_refused) {
    if (was_refused) {
        if (memory.bytes() != before) { report("a refused call wrote something"); }
        return;
    }
    const std::vector<bool> may_be_written = written_bytes(call, memory);
    for (std::size_t n = 0; n < arena::size; ++n) {
        if (!may_be_written[n] && memory.bytes()[n] != before[n]) { report("written beside the outputs"); }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static arena memory;
    byte_source bytes(data, size);
    onnx_call call;
    choose(call, bytes, memory);
    if (!can_be_tried(arrays_of(call), memory)) { return 0; }
    // Lengths are read before all else is known.
    if (call.given.nonpad_kv_seqlen &&
        !can_be_tried(std::array{describe(*call.given.nonpad_kv_seqlen)}, memory)) {
        return 0;
    }
    const std::vector<std::byte> before = memory.bytes();
    std::optional<std::string> first_refusal;
    std::vector<std::byte> first_bytes;
    for_each_isa([&](const std::string& name) {
        memory.restore(before);
        const std::string refusal =
            refusal_of([&] { onnx::attention(call.given, call.set, call.wanted, call.use); });
        check_writes(call, memory, before, !refusal.empty());
        if (!first_refusal.has_value()) {
            first_refusal = refusal;
            first_bytes = memory.bytes();
        }
        if (refusal != *first_refusal || memory.bytes() != first_bytes) {
            report("other results on " + name);
        }
    });
    // Without elements, there may be any number of heads.
    if (!first_refusal->empty() || call.set.q_num_heads.value_or(0) > 64) { return 0; }
    memory.restore(before);
    const onnx_results want = expect_onnx(call.given, call.set);
    memory.restore(first_bytes);
    const std::string difference = difference_from(want, call.wanted);
    if (!difference.empty()) { report(difference); }
    return 0;
}

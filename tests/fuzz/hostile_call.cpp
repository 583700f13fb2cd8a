#include "hostile_call.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::element_type;

constexpr std::array key_types = {element_type::f32,  element_type::f16,  element_type::bf16,
                                  element_type::i8,   element_type::e4m3, element_type::e5m2,
                                  element_type::q8_0, element_type::q4_0};

/// Numbers that ascend, most of the time.
std::span<const count> pick_span(byte_source& bytes, std::array<count, 6>& numbers, count most) {
    const auto size = static_cast<std::size_t>(bytes.between(0, 6));
    const bool is_hostile = bytes.one_in(4);
    for (count& number : numbers) { number = is_hostile ? hostile_number(bytes) : bytes.between(0, most); }
    if (!is_hostile) { std::sort(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(size)); }
    return std::span(numbers).first(size);
}

float hostile_float(byte_source& bytes) {
    constexpr std::array special = {0.0F,
                                    1.0F,
                                    -1.0F,
                                    std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::denorm_min(),
                                    30.0F};
    return bytes.pick(special);
}

void choose_views(hostile_call& call, byte_source& bytes, arena& memory) {
    tilewise::options& how = call.how;
    const auto [b, h, q, d] = call.q.extents;
    const count k = call.k.tokens();
    const element_type real = result_type(call.kind, element_type::f32);
    if (bytes.one_in(2)) { place(how.lse, memory, real, {b, h, q, 1}); }
    if (bytes.one_in(4)) { place(how.extra.row_maximum, memory, real, {b, h, q, 1}); }
    if (bytes.one_in(4)) { place(how.extra.entropy, memory, real, {b, h, q, 1}); }
    if (bytes.one_in(4)) { place(how.extra.key_weights, memory, real, {b, h, 1, k}); }
    if (bytes.one_in(4)) {
        const element_type other = result_type(call.kind, element_type::bf16);
        place(how.bias, memory, bytes.pick(std::array{element_type::f32, other}), {b, h, q, k});
    }
    if (bytes.one_in(4)) {
        place(how.mask, memory, bytes.pick(std::array{element_type::boolean, element_type::bit}),
              {b, 1, q, k});
    }
    if (bytes.one_in(6)) {
        how.blocks.query_block = bytes.one_in(2) ? hostile_number(bytes) : 2;
        how.blocks.key_block = bytes.one_in(2) ? hostile_number(bytes) : 2;
        place(how.blocks.visible, memory, element_type::boolean, {1, h, (q + 1) / 2, (k + 1) / 2});
    }
    if (bytes.one_in(6)) {
        place(how.ranges.first, memory, element_type::i32, {1, h, q, 1});
        place(how.ranges.last, memory, element_type::i32, {1, 1, q, 1});
    }
    if (bytes.one_in(4)) {
        how.extra.weight_rows = pick_span(bytes, call.numbers[4], std::max<count>(q - 1, 0));
        const auto rows = static_cast<count>(how.extra.weight_rows.size());
        place(how.extra.weights, memory, real, {b, h, rows, k});
    }
}

/// k and v in pages, and a table of them.
void choose_pages(hostile_call& call, byte_source& bytes, arena& memory) {
    const count entries = call.q.batch();
    place(call.how.block_table, memory, element_type::i32, {entries, 1, 1, 2});
    auto* const pages = static_cast<std::byte*>(const_cast<void*>(call.how.block_table.data));
    for (count n = 0; n < 2 * entries; ++n) {
        const count page = bytes.one_in(8) ? hostile_number(bytes) : bytes.between(0, 1) % call.k.batch();
        const auto stored = static_cast<std::int32_t>(page);
        std::memcpy(pages + 4 * n, &stored, sizeof stored);
    }
    call.how.key_lengths = pick_span(bytes, call.numbers[1], 2 * call.k.tokens());
    if (!bytes.one_in(4)) {
        call.how.key_lengths = std::span(call.numbers[1]).first(static_cast<std::size_t>(entries));
    }
}

std::span<std::byte> workspace_memory() {
    static std::vector<std::byte> memory(std::size_t{1} << 18U);
    return memory;
}

/// Memory beside the arena that is large enough, or some of the arena.
std::span<std::byte> pick_workspace(byte_source& bytes, arena& memory) {
    const std::span<std::byte> large = workspace_memory();
    if (!bytes.one_in(2)) { return large; }
    const auto size = static_cast<std::size_t>(hostile_number(bytes));
    if (bytes.one_in(2)) { return {memory.hostile_address(bytes), size}; }
    return large.subspan(static_cast<std::size_t>(bytes.between(0, 64)));
}

void choose_options(hostile_call& call, byte_source& bytes, arena& memory) {
    tilewise::options& how = call.how;
    how.causal = static_cast<tilewise::causal>(bytes.between(0, 9) % 4);
    if (bytes.one_in(6)) { how.scale = hostile_float(bytes); }
    if (bytes.one_in(6)) { how.soft_cap = hostile_float(bytes); }
    if (bytes.one_in(4)) { how.window_left = hostile_number(bytes); }
    if (bytes.one_in(6)) { how.window_right = hostile_number(bytes); }
    if (bytes.one_in(6)) { how.prefix = hostile_number(bytes); }
    if (bytes.one_in(6)) { how.attention_chunk = hostile_number(bytes); }
    if (bytes.one_in(6)) { how.query_position = hostile_number(bytes); }
    if (bytes.one_in(6)) { how.documents = pick_span(bytes, call.numbers[0], 9); }
    if (bytes.one_in(6)) { how.key_position = hostile_number(bytes); }
    if (bytes.one_in(8)) { how.key_positions = pick_span(bytes, call.numbers[5], 300); }
    if (call.k.batch() > 0 && bytes.one_in(5)) {
        choose_pages(call, bytes, memory);
    } else if (bytes.one_in(6)) {
        how.key_lengths = pick_span(bytes, call.numbers[1], call.k.tokens());
    }
    if (bytes.one_in(6)) {
        how.query_starts = pick_span(bytes, call.numbers[2], call.q.tokens());
        how.key_starts = pick_span(bytes, call.numbers[3], call.k.tokens());
    }
    for (std::array<float, 6>& values : call.factors) {
        if (!bytes.one_in(6)) { continue; }
        for (float& value : values) { value = bytes.one_in(4) ? hostile_float(bytes) : 0.5F; }
        const auto heads = static_cast<std::size_t>(bytes.one_in(3) ? bytes.between(0, 6) : call.q.heads());
        (&values == call.factors.data() ? how.alibi_slopes : how.sinks) =
            std::span(values).first(std::min<std::size_t>(heads, 6));
    }
    if (bytes.one_in(8)) { how.threads = static_cast<int>(hostile_number(bytes)); }
    if (bytes.one_in(8)) { how.scratch_budget = static_cast<std::size_t>(hostile_number(bytes)); }
    if (bytes.one_in(8)) { how.workspace = pick_workspace(bytes, memory); }
    how.arithmetic = arithmetic_of(call.kind);
    if (bytes.one_in(64)) { how.arithmetic = static_cast<tilewise::arithmetic>(bytes.byte()); }
    // Where q is not f64 it is refused, and two of the other kinds are enough to see it.
    if (call.kind != call_kind::exact && bytes.one_in(6)) { how.scale_f64 = hostile_float(bytes); }
}

/// Changes up to three things about views.
void harm_views(hostile_call& call, byte_source& bytes, arena& memory) {
    const std::array<tilewise::const_tensor*, 9> inputs = {&call.q,
                                                           &call.k,
                                                           &call.v,
                                                           &call.how.mask,
                                                           &call.how.bias,
                                                           &call.how.blocks.visible,
                                                           &call.how.ranges.first,
                                                           &call.how.ranges.last,
                                                           &call.how.block_table};
    const std::array<tilewise::tensor*, 6> results = {&call.out,
                                                      &call.how.lse,
                                                      &call.how.extra.row_maximum,
                                                      &call.how.extra.entropy,
                                                      &call.how.extra.key_weights,
                                                      &call.how.extra.weights};
    for (count left = bytes.between(0, 3); left > 0; --left) {
        const std::uint8_t which = bytes.byte();
        if (which % 16 < inputs.size()) {
            harm(*inputs[which % 16], bytes, memory);
        } else {
            harm(*results[which % results.size()], bytes, memory);
        }
    }
}

}  // namespace

hostile_call::hostile_call(byte_source& bytes, arena& memory) {
    memory.fill(bytes.byte());
    kind = pick_kind(bytes);
    const count b = bytes.one_in(3) ? bytes.between(0, 2) : 1;
    const count kv_heads = bytes.one_in(3) ? bytes.between(0, 2) : 1;
    const count heads = bytes.one_in(8) ? bytes.between(0, 5) : kv_heads * bytes.between(1, 2);
    const count queries = bytes.between(0, 5);
    const count keys = bytes.between(0, 6);
    const element_type k_type = input_type(kind, bytes.pick(key_types));
    const element_type v_type = input_type(kind, bytes.pick(key_types));
    const count key_dim = tilewise::block_of(k_type).elements > 1 ? 32 : bytes.between(0, 6);
    const count value_dim = tilewise::block_of(v_type).elements > 1 ? 32 : bytes.between(0, 6);
    place(q, memory, input_type(kind, element_type::f32), {b, heads, queries, key_dim});
    place(k, memory, k_type, {b, kv_heads, keys, key_dim});
    place(v, memory, v_type, {b, kv_heads, keys, value_dim});
    place(out, memory, result_type(kind, element_type::f32), {b, heads, queries, value_dim});
    choose_views(*this, bytes, memory);
    choose_options(*this, bytes, memory);
    harm_views(*this, bytes, memory);
}

std::vector<described> hostile_call::read() const {
    std::vector<described> made = {describe(q), describe(k), describe(v)};
    for (const tilewise::const_tensor* view : {&k, &v}) {
        if (has_scales(view->type)) { made.push_back(describe_scales(*view)); }
    }
    for (const tilewise::const_tensor* view :
         {&how.mask, &how.bias, &how.blocks.visible, &how.ranges.first, &how.ranges.last, &how.block_table}) {
        if (view->data != nullptr) { made.push_back(describe(*view)); }
    }
    return made;
}

std::vector<described> hostile_call::written() const {
    std::vector<described> made = {describe(out)};
    for (const tilewise::tensor* view :
         {&how.lse, &how.extra.row_maximum, &how.extra.entropy, &how.extra.key_weights, &how.extra.weights}) {
        if (view->data != nullptr) { made.push_back(describe(*view)); }
    }
    const auto workspace = static_cast<count>(how.workspace.size());
    if (workspace > 0) { made.push_back({how.workspace.data(), {workspace}, {1}, 1, 1}); }
    return made;
}

bool hostile_call::misuses_f64() const {
    const auto is_f64 = [](const tilewise::const_tensor& view) { return view.type == element_type::f64; };
    const bool has_f64 = is_f64(q);
    const bool is_mixed = is_f64(k) != has_f64 || is_f64(v) != has_f64;
    const std::vector<tilewise::const_tensor> results = {
        out, how.lse, how.extra.row_maximum, how.extra.entropy, how.extra.key_weights, how.extra.weights};
    const bool has_wrong_result = std::any_of(results.begin(), results.end(), [&](const auto& view) {
        return view.data != nullptr && is_f64(view) != has_f64;
    });
    const bool has_f64_option = how.scale_f64.has_value() || (how.bias.data != nullptr && is_f64(how.bias));
    return is_mixed || has_wrong_result || (has_f64_option && !has_f64);
}

bool hostile_call::can_plan(arena& memory) const {
    const described table = describe(how.block_table);
    return table.data == nullptr || table.is_beyond_63_bits() || table.is_within(memory);
}

bool hostile_call::can_run(arena& memory) const {
    const auto is_within = [&](const described& one) { return one.is_within(memory); };
    const std::vector<described> inputs = read();
    std::vector<described> results = written();
    if (!how.workspace.empty()) {
        const std::span<std::byte> large = workspace_memory();
        const auto offset = reinterpret_cast<std::uintptr_t>(how.workspace.data()) -
                            reinterpret_cast<std::uintptr_t>(large.data());
        if (offset > large.size() || how.workspace.size() > large.size() - offset) { return false; }
        results.pop_back();
    }
    return std::all_of(inputs.begin(), inputs.end(), is_within) &&
           std::all_of(results.begin(), results.end(), is_within);
}

bool hostile_call::has_too_many_tasks() const {
    if (how.key_lengths.empty() && how.key_positions.empty() && how.query_starts.empty()) { return false; }
    return !describe(q).is_small() &&
           !described{nullptr, {q.batch(), q.heads(), q.tokens()}, {0, 0, 0}}.is_small();
}

}  // namespace tilewise_tests

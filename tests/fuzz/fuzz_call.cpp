#include "fuzz_call.hpp"

#include <algorithm>
#include <array>

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::element_type;

constexpr std::array float_types = {element_type::f32, element_type::f16, element_type::bf16};
constexpr std::array key_types = {element_type::f32,  element_type::f16,  element_type::bf16,
                                  element_type::i8,   element_type::e4m3, element_type::e5m2,
                                  element_type::q8_0, element_type::q4_0};

struct sizes {
    count batch;
    count kv_heads;
    count group;
    count queries;
    count keys;
    count key_dim;
    count value_dim;

    /// Multiply-adds, and what each score takes besides.
    [[nodiscard]] count work() const {
        return batch * kv_heads * group * queries * keys * (key_dim + value_dim + 6);
    }
};

/// What is one multiply-add in the kernels is a call of a function in the reference.
constexpr count most_work = 100'000;
/// Enough for several threads to be used.
constexpr count most_work_of_large = 5'000'000;

void halve(count& value) { value = (value + 1) / 2; }

sizes pick_sizes(byte_source& bytes) {
    sizes made{};
    const bool is_large = bytes.one_in(128);
    made.batch = bytes.one_in(4) ? bytes.between(0, 3) : 1;
    made.kv_heads = bytes.one_in(4) ? bytes.between(0, 3) : 1;
    made.group = bytes.one_in(4) ? bytes.between(1, 9) : 1;
    made.queries = bytes.between(0, is_large ? 700 : 110);
    made.keys = bytes.between(0, is_large ? 1000 : 420);
    made.key_dim = bytes.between(0, 100);
    made.value_dim = bytes.between(0, 100);
    const count most = is_large ? most_work_of_large : most_work;
    for (count turn = 0; made.work() > most; ++turn) {
        if (turn % 4 == 0) { halve(made.key_dim); }
        if (turn % 4 == 1) { halve(made.value_dim); }
        if (turn % 4 == 2) { halve(made.queries); }
        if (turn % 4 == 3) { halve(made.keys); }
    }
    return made;
}

bool is_in_blocks(element_type type) { return tilewise::block_of(type).elements > 1; }

/// Keys of each batch entry, or pages of them: how many, of how many tokens.
struct pool {
    count pages;
    count tokens;
    count table_pages;  ///< most pages of an entry; 0: no pages
};

pool pick_pool(byte_source& bytes, const sizes& s) {
    if (!bytes.one_in(5)) { return {s.batch, s.keys, 0}; }
    constexpr std::array<count, 9> page_sizes = {128, 1, 2, 7, 16, 64, 100, 129, 256};
    const count tokens = bytes.pick(page_sizes);
    const count table_pages = std::max<count>((s.keys + tokens - 1) / tokens, 1);
    return {bytes.between(1, table_pages * std::max<count>(s.batch, 1) + 1), tokens, table_pages};
}

count whole_blocks(count dim) { return dim < 48 ? 32 : 64; }

}  // namespace

std::span<std::int64_t> make_numbers(fuzz_memory& memory, count how_many) {
    const auto size = static_cast<std::size_t>(how_many);
    return {memory.values<std::int64_t>(size), size};
}

fuzz_call::fuzz_call(byte_source& bytes) : kind(pick_kind(bytes)) {
    how.arithmetic = arithmetic_of(kind);
    sizes s = pick_sizes(bytes);
    const element_type k_type = input_type(kind, bytes.pick(key_types));
    const element_type v_type = input_type(kind, bytes.pick(key_types));
    if (is_in_blocks(k_type)) { s.key_dim = whole_blocks(s.key_dim); }
    if (is_in_blocks(v_type)) { s.value_dim = whole_blocks(s.value_dim); }
    is_packed = bytes.one_in(5);
    if (is_packed) { s.batch = 1; }
    const count heads = s.kv_heads * s.group;
    q = memory.input(bytes, input_type(kind, bytes.pick(float_types)),
                     {s.batch, heads, s.queries, s.key_dim});
    const pool cut = pick_pool(bytes, s);
    is_paged = cut.table_pages > 0;
    k = memory.input(bytes, k_type, {cut.pages, s.kv_heads, cut.tokens, s.key_dim});
    v = memory.input(bytes, v_type, {cut.pages, s.kv_heads, cut.tokens, s.value_dim});
    out = memory.result(bytes, "out", result_type(kind, bytes.pick(float_types)),
                        {s.batch, heads, s.queries, s.value_dim});
    sequences = s.batch;
    longest_queries = s.queries;
    longest_keys = s.keys;
    if (is_packed) { choose_packing(bytes, *this); }
    if (is_paged) { choose_pages(bytes, *this, cut.table_pages); }
    choose_intervals(bytes, *this);
    choose_positions(bytes, *this);
    choose_tensor_masks(bytes, *this);
    choose_modifiers(bytes, *this);
    choose_results(bytes, *this);
    if (kind == call_kind::f64) { choose_for_f64(bytes, *this); }
}

bool fuzz_call::must_be_refused() const {
    const bool is_f64 = kind == call_kind::f64;
    return is_f64 && (how.score_function.call != nullptr || (how.scale && how.scale_f64));
}

}  // namespace tilewise_tests

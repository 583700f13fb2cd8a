#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <tilewise/tilewise.hpp>
#include <utility>
#include <vector>

#include "agreement.hpp"
#include "call_kind.hpp"
#include "fuzz_memory.hpp"
#include "hostile.hpp"
#include "sequences.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::const_tensor;
using tilewise::element_type;
using tilewise::kv_cache;

constexpr std::array stored_types = {element_type::f32,  element_type::f16,  element_type::bf16,
                                     element_type::q8_0, element_type::q4_0, element_type::i8,
                                     element_type::e4m3, element_type::e5m2};

/// Tokens of one sequence in f32: [tokens][kv_heads][dim], from token 0 on.
struct model_rows {
    std::vector<float> k;
    std::vector<float> v;
};

/// One head in its storage type, and its scales.
struct stored_rows {
    std::vector<std::byte> bytes;
    std::vector<float> scales;

    template <class Number>
    std::span<Number> row(std::size_t first, std::size_t elements) {
        return {reinterpret_cast<Number*>(bytes.data() + first), elements};
    }
};

void store_row(stored_rows& to, element_type type, std::size_t row, std::span<const float> values) {
    const std::size_t dim = values.size();
    const tilewise::element_block block = tilewise::block_of(type);
    const std::size_t first =
        row * dim / static_cast<std::size_t>(block.elements) * static_cast<std::size_t>(block.bytes);
    switch (type) {
        case element_type::f32:
            std::copy(values.begin(), values.end(), to.row<float>(first, dim).begin());
            break;
        case element_type::f16:
            for (std::size_t i = 0; i < dim; ++i) {
                to.row<tilewise::float16>(first, dim)[i] = tilewise::float16(values[i]);
            }
            break;
        case element_type::bf16:
            for (std::size_t i = 0; i < dim; ++i) {
                to.row<tilewise::bfloat16>(first, dim)[i] = tilewise::bfloat16(values[i]);
            }
            break;
        case element_type::q8_0:
            tilewise::quantize_q8_0(values, to.row<tilewise::q8_0_block>(first, dim / 32));
            break;
        case element_type::q4_0:
            tilewise::quantize_q4_0(values, to.row<tilewise::q4_0_block>(first, dim / 32));
            break;
        case element_type::i8:
            tilewise::quantize_i8_per_token(values, to.row<std::int8_t>(first, dim),
                                            std::span(to.scales).subspan(row, 1));
            break;
        case element_type::e4m3:
            to.scales[row] = tilewise::quantize_e4m3(values, to.row<tilewise::float8_e4m3>(first, dim));
            break;
        default:
            to.scales[row] = tilewise::quantize_e5m2(values, to.row<tilewise::float8_e5m2>(first, dim));
    }
}

/// Tokens `first` .. of a sequence as a contiguous tensor [1, kv_heads, tokens, dim].
const_tensor store(stored_rows& to, element_type type, const std::vector<float>& rows, count first,
                   count heads, count dim) {
    const count tokens = static_cast<count>(rows.size()) / (heads * dim) - first;
    const tilewise::element_block block = tilewise::block_of(type);
    to.bytes.resize(static_cast<std::size_t>(heads * tokens * dim / block.elements * block.bytes));
    to.scales.resize(static_cast<std::size_t>(heads * tokens));
    for (count h = 0; h < heads; ++h) {
        for (count t = 0; t < tokens; ++t) {
            store_row(to, type, static_cast<std::size_t>(h * tokens + t),
                      std::span(rows).subspan(static_cast<std::size_t>(((first + t) * heads + h) * dim),
                                              static_cast<std::size_t>(dim)));
        }
    }
    const_tensor view(to.bytes.data(), type, {1, heads, tokens, dim},
                      {heads * tokens * dim, tokens * dim, dim, 1});
    if (has_scales(type)) {
        view = tilewise::with_scales(view, to.scales.data(), tilewise::scales_per::token);
    }
    return view;
}

/// What a function of the cache said when it refused; empty if it did not.
std::string cache_refusal(const std::function<void()>& call) {
    try {
        return refusal_of([&] {
            try {
                call();
            } catch (const std::length_error& full) { throw std::invalid_argument(full.what()); }
        });
    } catch (const std::exception& error) { report(error.what()); }
}

struct cache_run {
    tilewise::kv_cache_options how;
    count group;
    call_kind kind;
    kv_cache cache;
    std::vector<std::optional<model_rows>> models;  ///< by the sequence's number
    number_mixture numbers;

    [[nodiscard]] count length(std::size_t sequence) const {
        return static_cast<count>(models[sequence]->k.size()) / (how.kv_heads * how.head_dim);
    }
};

tilewise::kv_cache_options pick_cache(byte_source& bytes, call_kind kind) {
    tilewise::kv_cache_options how;
    how.kv_heads = bytes.between(1, 2);
    how.k_type = input_type(kind, bytes.pick(stored_types));
    how.v_type = input_type(kind, bytes.pick(stored_types));
    how.head_dim = tilewise::block_of(how.k_type).elements > 1 ? 32 : bytes.between(1, 12);
    how.value_dim = tilewise::block_of(how.v_type).elements > 1 ? 32 : bytes.between(1, 12);
    how.page_tokens = bytes.pick(std::array<count, 8>{16, 1, 2, 5, 33, 128, 130, 256});
    how.pages = bytes.between(1, 24);
    how.max_sequences = bytes.between(1, 4);
    if (bytes.one_in(4)) { how.max_tokens = bytes.between(1, 300); }
    if (bytes.one_in(3)) { how.window = bytes.between(0, 60); }
    return how;
}

void append(cache_run& run, std::size_t sequence, byte_source& bytes) {
    const count tokens = bytes.one_in(4) ? bytes.between(0, 200) : bytes.between(1, 20);
    const auto& how = run.how;
    model_rows rows;
    rows.k.resize(static_cast<std::size_t>(tokens * how.kv_heads * how.head_dim));
    rows.v.resize(static_cast<std::size_t>(tokens * how.kv_heads * how.value_dim));
    for (std::vector<float>* const all : {&rows.k, &rows.v}) {
        for (float& value : *all) { value = next_number(run.numbers); }
    }
    const count before = run.cache.length(static_cast<int>(sequence));
    const count pages = run.cache.free_pages();
    const std::string refusal = cache_refusal([&] {
        run.cache.append(
            static_cast<int>(sequence),
            tilewise::bshd(std::as_const(rows.k).data(), 1, tokens, how.kv_heads, how.head_dim),
            tilewise::bshd(std::as_const(rows.v).data(), 1, tokens, how.kv_heads, how.value_dim));
    });
    if (!refusal.empty()) {
        if (run.cache.length(static_cast<int>(sequence)) != before || run.cache.free_pages() != pages) {
            report("a refused append changed the cache");
        }
        return;
    }
    model_rows& model = *run.models[sequence];
    model.k.insert(model.k.end(), rows.k.begin(), rows.k.end());
    model.v.insert(model.v.end(), rows.v.begin(), rows.v.end());
}

void fork(cache_run& run, std::size_t sequence, byte_source& bytes) {
    const count tokens = bytes.one_in(8) ? hostile_number(bytes) : bytes.between(0, run.length(sequence));
    int made = -1;
    const std::string refusal =
        cache_refusal([&] { made = run.cache.fork(static_cast<int>(sequence), tokens); });
    if (!refusal.empty()) { return; }
    if (tokens < 0 || tokens > run.length(sequence)) { report("a fork with tokens that are not there"); }
    model_rows copy = *run.models[sequence];
    copy.k.resize(static_cast<std::size_t>(tokens * run.how.kv_heads * run.how.head_dim));
    copy.v.resize(static_cast<std::size_t>(tokens * run.how.kv_heads * run.how.value_dim));
    run.models[static_cast<std::size_t>(made)] = std::move(copy);
}

void truncate(cache_run& run, std::size_t sequence, byte_source& bytes) {
    const count tokens = bytes.one_in(8) ? hostile_number(bytes) : bytes.between(0, run.length(sequence));
    if (!cache_refusal([&] { run.cache.truncate(static_cast<int>(sequence), tokens); }).empty()) { return; }
    if (tokens < 0 || tokens > run.length(sequence)) { report("a sequence was cut where it has no token"); }
    run.models[sequence]->k.resize(static_cast<std::size_t>(tokens * run.how.kv_heads * run.how.head_dim));
    run.models[sequence]->v.resize(static_cast<std::size_t>(tokens * run.how.kv_heads * run.how.value_dim));
}

tilewise::options pick_options(byte_source& bytes, count heads, std::vector<float>& per_head) {
    tilewise::options how;
    how.causal = bytes.pick(
        std::array{tilewise::causal::bottom_right, tilewise::causal::none, tilewise::causal::top_left});
    if (bytes.one_in(3)) { how.window_left = bytes.between(0, 80); }
    if (bytes.one_in(6)) { how.window_right = bytes.between(0, 5); }
    if (bytes.one_in(6)) { how.prefix = bytes.between(0, 20); }
    if (bytes.one_in(6)) { how.attention_chunk = bytes.between(0, 60); }
    if (bytes.one_in(6)) { how.soft_cap = 5.0F; }
    if (bytes.one_in(6)) { how.scale = -0.7F; }
    if (bytes.one_in(8) && how.causal != tilewise::causal::top_left) {
        how.query_position = bytes.between(0, 300);
    }
    per_head.assign(static_cast<std::size_t>(heads), 0.25F);
    if (bytes.one_in(6)) { how.alibi_slopes = per_head; }
    if (bytes.one_in(6)) { how.sinks = per_head; }
    return how;
}

/// The reference on each sequence by itself must refuse as the cache did.
void attend_naively(const cache_run& run, std::span<const int> sequences, const const_tensor& q,
                    const tilewise::tensor& out, const tilewise::options& how, const std::string& refusal) {
    const auto& cache = run.how;
    for (count n = 0; n < q.batch(); ++n) {
        const int sequence = sequences[static_cast<std::size_t>(n)];
        const model_rows& model = *run.models[static_cast<std::size_t>(sequence)];
        stored_rows k_rows;
        stored_rows v_rows;
        const count first = run.cache.first_position(sequence);
        tilewise::options alone = how;
        alone.key_position = first;
        const const_tensor k = store(k_rows, cache.k_type, model.k, first, cache.kv_heads, cache.head_dim);
        const const_tensor v = store(v_rows, cache.v_type, model.v, first, cache.kv_heads, cache.value_dim);
        const std::string said = refusal_of([&] {
            tilewise::reference::attention(q.slice(tilewise::axis::batch, n, 1), k, v,
                                           out.slice(tilewise::axis::batch, n, 1), alone);
        });
        if (said.empty() != refusal.empty()) {
            report("the cache says '" + refusal + "', the reference '" + said + "'");
        }
    }
}

/// All sequences at once, against the reference on each of them.
void attend(cache_run& run, byte_source& bytes) {
    std::vector<int> sequences;
    for (std::size_t n = 0; n < run.models.size(); ++n) {
        if (run.models[n].has_value() && !bytes.one_in(4)) { sequences.push_back(static_cast<int>(n)); }
    }
    const auto& cache = run.how;
    const count heads = cache.kv_heads * run.group;
    const auto entries = static_cast<count>(sequences.size());
    const count queries = bytes.between(0, 9);
    std::vector<float> numbers(static_cast<std::size_t>(entries * heads * queries * cache.head_dim));
    for (float& value : numbers) { value = next_number(run.numbers); }
    std::vector<float> got(static_cast<std::size_t>(entries * heads * queries * cache.value_dim), 77.0F);
    std::vector<float> want = got;
    const std::vector<tilewise::bfloat16> narrow(numbers.begin(), numbers.end());
    const const_tensor q =
        run.kind == call_kind::pairs
            ? tilewise::bhsd(narrow.data(), entries, heads, queries, cache.head_dim)
            : tilewise::bhsd(std::as_const(numbers).data(), entries, heads, queries, cache.head_dim);
    std::vector<float> per_head;
    tilewise::options how = pick_options(bytes, heads, per_head);
    how.arithmetic = arithmetic_of(run.kind);
    const setting run_with = pick_setting(bytes);
    tilewise::force_isa(bytes.pick(tilewise::available_isas()));
    const std::string refusal = cache_refusal([&] {
        run.cache.attention(sequences, q,
                            tilewise::bhsd(got.data(), entries, heads, queries, cache.value_dim),
                            with(how, run_with));
    });
    attend_naively(run, sequences, q, tilewise::bhsd(want.data(), entries, heads, queries, cache.value_dim),
                   how, refusal);
    tilewise::unforce_isa();
    const auto same = [](float a, float b) {
        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    if (refusal.empty() && !std::equal(got.begin(), got.end(), want.begin(), same)) {
        report("the cache has other bits than the reference");
    }
}

void check_lengths(const cache_run& run) {
    for (std::size_t n = 0; n < run.models.size(); ++n) {
        if (run.models[n].has_value() && run.cache.length(static_cast<int>(n)) != run.length(n)) {
            report("the cache has another length than the model");
        }
    }
}

/// Caches of any sizes, and functions with numbers of no sequence.
void check_refusals(byte_source& bytes) {
    tilewise::kv_cache_options how = pick_cache(bytes, call_kind::exact);
    for (count changes = bytes.between(1, 3); changes > 0; --changes) {
        const std::array<count*, 7> all = {&how.kv_heads,    &how.head_dim, &how.value_dim,
                                           &how.page_tokens, &how.pages,    &how.max_sequences,
                                           &how.max_tokens};
        *bytes.pick(all) = hostile_number(bytes);
    }
    if (bytes.one_in(4)) { how.window = hostile_number(bytes); }
    if (bytes.one_in(4)) { how.k_type = static_cast<element_type>(bytes.between(0, 14)); }
    const auto at_least_1 = [](count number) { return static_cast<long double>(std::max<count>(number, 1)); };
    const long double total = at_least_1(how.kv_heads) * at_least_1(how.page_tokens) * at_least_1(how.pages) *
                              (at_least_1(how.head_dim) + at_least_1(how.value_dim));
    const long double tables = at_least_1(how.max_sequences) * at_least_1(how.pages);
    // What could be had, and is large, is not asked for.
    if ((total > 1e6L && total < 1e17L) || (tables > 1e6L && tables < 1e17L) || how.max_sequences > 100'000) {
        return;
    }
    if (!refusal_of([&] { static_cast<void>(kv_cache(how)); }).empty()) { return; }
    if (std::find(stored_types.begin(), stored_types.end(), how.k_type) == stored_types.end()) {
        report("a cache of another type was accepted");
    }
    static_cast<void>(cache_refusal([&] {
        kv_cache cache(how);
        const int sequence = static_cast<int>(hostile_number(bytes));
        cache.add();
        const std::vector<float> row(
            static_cast<std::size_t>(how.kv_heads * std::max(how.head_dim, how.value_dim)), 1.0F);
        const count tokens = hostile_number(bytes);
        const_tensor k(row.data(), element_type::f32, {1, how.kv_heads, tokens, how.head_dim},
                       {0, how.head_dim, 0, 1});
        const_tensor v(row.data(), element_type::f32, {1, how.kv_heads, tokens, how.value_dim},
                       {0, how.value_dim, 0, 1});
        cache.append(0, k.slice(tilewise::axis::tokens, 0, std::min<count>(std::max<count>(tokens, 0), 1)),
                     v.slice(tilewise::axis::tokens, 0, std::min<count>(std::max<count>(tokens, 0), 1)));
        if (tokens < 0 || tokens > 2000) {
            if (cache_refusal([&] { cache.append(0, k, v); }).empty()) {
                report("a cache took too many tokens");
            }
        }
        cache.truncate(0, bytes.one_in(2) ? hostile_number(bytes) : 1);
        cache.remove(sequence);
    }));
}

}  // namespace

void check_cache(byte_source& bytes) {
    const auto kind = bytes.pick(std::array{call_kind::exact, call_kind::pairs, call_kind::fastest});
    if (bytes.one_in(8)) { return check_refusals(bytes); }
    const tilewise::kv_cache_options how = pick_cache(bytes, kind);
    const count group = bytes.between(1, 3);
    cache_run run{how, group, kind, kv_cache(how), {}, pick_mixture(bytes)};
    run.models.resize(static_cast<std::size_t>(how.max_sequences));
    for (count step = 0; step < 40 && !bytes.rest().empty(); ++step) {
        const auto sequence = static_cast<std::size_t>(bytes.between(0, how.max_sequences - 1));
        if (!run.models[sequence].has_value()) {
            int made = -1;
            if (cache_refusal([&] { made = run.cache.add(); }).empty()) {
                run.models[static_cast<std::size_t>(made)].emplace();
            }
            continue;
        }
        switch (bytes.between(0, 9)) {
            case 0:
                run.cache.remove(static_cast<int>(sequence));
                run.models[sequence].reset();
                break;
            case 1:
                fork(run, sequence, bytes);
                break;
            case 2:
                truncate(run, sequence, bytes);
                break;
            case 3:
            case 4:
            case 5:
                attend(run, bytes);
                break;
            default:
                append(run, sequence, bytes);
        }
        check_lengths(run);
    }
    for (std::size_t n = 0; n < run.models.size(); ++n) {
        if (run.models[n].has_value()) { run.cache.remove(static_cast<int>(n)); }
    }
    if (run.cache.free_pages() != how.pages) { report("the empty cache lacks pages"); }
}

}  // namespace tilewise_tests

// Quantised keys and values: the tiled computation has the naive one's bits, and both have those of the same
// values in f32; what is stored where; and what is refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cases.hpp"
#include "guarded_memory.hpp"
#include "mask_cases.hpp"
#include "pairwise.hpp"
#include "quantized_tensors.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::element_type;

constexpr std::array<count, 7> lengths = {1, 5, 47, 128, 129, 300, 700};
constexpr std::array<count, 5> dims = {32, 64, 96, 128, 256};
constexpr std::array<std::array<count, 2>, 4> heads = {{{1, 1}, {4, 2}, {6, 1}, {3, 3}}};

enum axis_index : std::size_t {
    of_k_type,
    of_v_type,
    of_key_dim,
    of_value_dim,
    of_queries,
    of_keys,
    of_heads,
    of_k_order,
    of_v_order,
    of_k_scales,
    of_v_scales,
    of_causal,
    of_out_type,
    axes
};

std::vector<selection> covering_selection() {
    std::vector<std::size_t> sizes(axes);
    sizes[of_k_type] = sizes[of_v_type] = quantized_types.size();
    sizes[of_key_dim] = sizes[of_value_dim] = dims.size();
    sizes[of_queries] = sizes[of_keys] = lengths.size();
    sizes[of_heads] = heads.size();
    sizes[of_k_order] = sizes[of_v_order] = all_row_orders.size();
    sizes[of_k_scales] = sizes[of_v_scales] = all_scale_orders.size();
    sizes[of_causal] = all_causal.size();
    sizes[of_out_type] = float_types.size();
    return cover_pairs(sizes, [](const selection&) { return true; });
}

attention_case case_of(const selection& chosen) {
    attention_case made;
    made.batch = 2;
    made.heads = heads[chosen[of_heads]][0];
    made.kv_heads = heads[chosen[of_heads]][1];
    made.queries = lengths[chosen[of_queries]];
    made.keys = lengths[chosen[of_keys]];
    made.key_dim = dims[chosen[of_key_dim]];
    made.value_dim = dims[chosen[of_value_dim]];
    // Blocks need whole multiples of 32.
    const auto is_single = [&](axis_index type) {
        return tilewise::block_of(quantized_types[chosen[type]]).elements == 1;
    };
    if (is_single(of_k_type) && chosen[of_queries] % 2 == 0) { made.key_dim -= 5; }
    if (is_single(of_v_type) && chosen[of_keys] % 2 == 0) { made.value_dim -= 3; }
    made.causal = all_causal[chosen[of_causal]];
    made.types[3] = float_types[chosen[of_out_type]];
    return made;
}

results run(const attention_case& which, const tilewise::const_tensor& q, const tilewise::const_tensor& k,
            const tilewise::const_tensor& v, bool naively, int threads = 1) {
    results made = make_results(which);
    (naively ? tilewise::reference::attention : tilewise::attention)(
        q, k, v, made.out.view(), {.causal = which.causal, .lse = made.lse.view(), .threads = threads});
    return made;
}

}  // namespace

TEST_CASE("quantized: all axes, pairwise") {
    count number = 0;
    for (const selection& chosen : covering_selection()) {
        attention_case which = case_of(chosen);
        const count most_work = by_effort(2'000'000, 20'000'000, 100'000'000);
        while (which.work() > most_work && which.queries > 1) { which.queries = (which.queries + 1) / 2; }
        const auto seed = static_cast<std::uint64_t>(++number);
        const owned_tensor q({which.batch, which.heads, which.queries, which.key_dim});
        q.fill_normal(seed, 0.3F);
        const quantized_tensor k({which.batch, which.kv_heads, which.keys, which.key_dim},
                                 quantized_types[chosen[of_k_type]], all_row_orders[chosen[of_k_order]],
                                 seed + 1000, all_scale_orders[chosen[of_k_scales]]);
        const quantized_tensor v({which.batch, which.kv_heads, which.keys, which.value_dim},
                                 quantized_types[chosen[of_v_type]], all_row_orders[chosen[of_v_order]],
                                 seed + 2000, all_scale_orders[chosen[of_v_scales]]);
        INFO(show(which), ", k in ", show(k.view().type), ", v in ", show(v.view().type));
        const results want = run(which, q.view(), k.view(), v.view(), true);
        CHECK(first_difference(run(which, q.view(), k.view(), v.view(), false, 2), want) == "");
        const owned_tensor k_values = k.values();
        const owned_tensor v_values = v.values();
        CHECK(first_difference(run(which, q.view(), k_values.view(), v_values.view(), false), want) == "");
        CHECK(first_difference(run(which, q.view(), k.view(), v_values.view(), false), want) == "");
        CHECK(first_difference(run(which, q.view(), k_values.view(), v.view(), false), want) == "");
    }
    MESSAGE(number, " cases");
}

TEST_CASE("quantized: every scale of a block, NaN and infinity among them") {
    const owned_tensor zeros({256, 256, 1, 1});
    zeros.fill([] { return 0.0F; });
    for (const element_type type : quantized_types) {
        if (tilewise::block_of(type).elements == 1) { continue; }
        quantized_tensor v({256, 256, 1, 32}, type, row_order::bhsd, 3);
        for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
            std::byte* const block =
                v.memory().data() + bits * static_cast<std::size_t>(tilewise::block_of(type).bytes);
            block[0] = static_cast<std::byte>(bits);
            block[1] = static_cast<std::byte>(bits >> 8U);
        }
        const attention_case which{.batch = 256, .heads = 256, .kv_heads = 256, .value_dim = 32};
        // One key of score 0 has the weight 1; a zero is written as +0, and a NaN as the canonical one.
        const owned_tensor want = v.values();
        for (count b = 0; b < 256; ++b) {
            for (count h = 0; h < 256; ++h) {
                for (count i = 0; i < 32; ++i) {
                    float& value = want.at(b, h, 0, i);
                    value = std::isnan(value) ? from_bits(canonical_nan_bits) : value + 0.0F;
                }
            }
        }
        for (const bool naively : {false, true}) {
            const results got = run(which, zeros.view(), zeros.view(), v.view(), naively);
            CHECK(first_difference(got.out.view(), want.view()) == "");
        }
    }
}

#if defined(__unix__) || defined(__APPLE__)
TEST_CASE("quantized: nothing outside the blocks is read") {
    for (const element_type type : quantized_types) {
        for (const row_order order : all_row_orders) {
            for (const guard where : {guard::behind, guard::before}) {
                const count dim = tilewise::block_of(type).elements == 1 ? 93 : 96;
                const attention_case which{.queries = 3, .keys = 131, .key_dim = dim, .value_dim = dim};
                const inputs given = make_inputs(which);
                quantized_tensor k({1, 1, 131, dim}, type,
                                   order == row_order::neighbours ? row_order::bhsd : order, 1);
                const results want = run(which, given.q.view(), k.view(), k.view(), true);
                const guarded_memory memory(k.memory().size(), where);
                std::copy(k.memory().begin(), k.memory().end(), memory.data());
                tilewise::const_tensor guarded = k.view();
                guarded.data =
                    memory.data() + (static_cast<const std::byte*>(guarded.data) - k.memory().data());
                CHECK(first_difference(run(which, given.q.view(), guarded, guarded, false), want) == "");
                CHECK(first_difference(run(which, given.q.view(), guarded, guarded, true), want) == "");
            }
        }
    }
}
#endif

TEST_CASE("quantized: slices take their scales along") {
    for (const scale_order order : all_scale_orders) {
        const quantized_tensor k({2, 3, 200, 40}, element_type::i8, row_order::bshd, 7, order);
        const owned_tensor values = k.values();
        const auto part = [](const tilewise::const_tensor& of) {
            return of.slice(tilewise::axis::batch, 1, 1)
                .slice(tilewise::axis::heads, 1, 2)
                .slice(tilewise::axis::tokens, 30, 150)
                .slice(tilewise::axis::head_dim, 3, 33);
        };
        const owned_tensor q({1, 2, 4, 33});
        q.fill_normal(8);
        const attention_case sizes{.heads = 2, .queries = 4, .value_dim = 33};
        CHECK(first_difference(run(sizes, q.view(), part(k.view()), part(k.view()), false),
                               run(sizes, q.view(), part(values.view()), part(values.view()), true)) == "");
    }
}

TEST_CASE("quantized: every number times special scales") {
    const owned_tensor zeros({1, 1, 1, 1});
    zeros.fill([] { return 0.0F; });
    for (const element_type type : quantized_types) {
        if (!has_scales(type)) { continue; }
        for (const float scale : {1.0F, -0.3F, 0.0F, 1e-40F, 3e38F, infinity, quiet_nan}) {
            quantized_tensor v({1, 1, 1, 256}, type, row_order::bhsd, 1, scale_order::per_head);
            for (std::size_t byte = 0; byte < 256; ++byte) {
                v.memory()[byte] = static_cast<std::byte>(byte);
            }
            tilewise::const_tensor view = v.view();
            view.scales = &scale;
            const owned_tensor want({1, 1, 1, 256});
            for (count i = 0; i < 256; ++i) {
                const float value = scale * v.number(i);
                want.at(0, 0, 0, i) = std::isnan(value) ? from_bits(canonical_nan_bits) : value + 0.0F;
            }
            for (const bool naively : {false, true}) {
                const results got = run({.value_dim = 256}, zeros.view(), zeros.view(), view, naively);
                INFO(show(type), ", scale ", scale);
                CHECK(first_difference(got.out.view(), want.view()) == "");
            }
        }
    }
}

TEST_CASE("quantized: padding of any kind does not reach a result") {
    for (const element_type type : quantized_types) {
        const attention_case which{.heads = 2, .queries = 50, .keys = 300, .key_dim = 64, .value_dim = 64};
        const owned_tensor q({1, 2, 50, 64});
        q.fill_normal(2);
        quantized_tensor k({1, 1, 300, 64}, type, row_order::bhsd, 5);
        const std::vector<count> lengths_of_keys = {170};
        const auto attend = [&](const tilewise::const_tensor& keys) {
            results made = make_results(which);
            tilewise::attention(q.view(), keys, keys, made.out.view(),
                                {.causal = tilewise::causal::bottom_right,
                                 .key_lengths = lengths_of_keys,
                                 .lse = made.lse.view()});
            return made;
        };
        const results clean = attend(k.view());
        CHECK(std::isfinite(clean.lse.at(0, 0, 40, 0)));
        const std::size_t used = k.memory().size() / 300 * 170;
        std::fill(k.memory().begin() + static_cast<std::ptrdiff_t>(used), k.memory().end(), std::byte{0x7f});
        k.spoil_scales_from(170);
        CHECK(first_difference(attend(k.view()), clean) == "");
    }
}

TEST_CASE("quantized: masks and packed sequences take keys from anywhere") {
    random_source random(19);
    for (count number = 0; number < by_effort(20, 40, 100); ++number) {
        attention_case sizes{.batch = random.between(1, 2),
                             .heads = 4,
                             .kv_heads = 2,
                             .queries = random.between(1, 150),
                             .keys = random.between(1, 500),
                             .key_dim = 32,
                             .value_dim = 64};
        const auto any = [&](const auto& of) { return of[random.bits() % of.size()]; };
        const owned_tensor q({sizes.batch, 4, sizes.queries, 32});
        q.fill_normal(random.bits());
        const extents k_extents = {sizes.batch, 2, sizes.keys, 32};
        const extents v_extents = {sizes.batch, 2, sizes.keys, 64};
        const quantized_tensor k(k_extents, any(quantized_types), any(all_row_orders), random.bits(),
                                 any(all_scale_orders));
        const quantized_tensor v(v_extents, any(quantized_types), any(all_row_orders), random.bits(),
                                 any(all_scale_orders));
        mask_case masks = random_masks(random, sizes);
        const std::array query_starts = {sizes.queries / 3, sizes.queries / 2, sizes.queries};
        const std::array key_starts = {sizes.keys / 4, sizes.keys / 2, sizes.keys};
        if (sizes.batch == 1 && number % 2 == 0) {
            masks.how = {.causal = tilewise::causal::bottom_right,
                         .query_starts = query_starts,
                         .key_starts = key_starts};
        }
        INFO(show(sizes), ", ", masks.names, ", k in ", show(k.view().type), ", v in ", show(v.view().type));
        const results want = make_results(sizes);
        const results got = make_results(sizes);
        masks.how.lse = want.lse.view();
        tilewise::reference::attention(q.view(), k.view(), v.view(), want.out.view(), masks.how);
        masks.how.lse = got.lse.view();
        tilewise::attention(q.view(), k.view(), v.view(), got.out.view(), masks.how);
        CHECK(first_difference(got, want) == "");
    }
}

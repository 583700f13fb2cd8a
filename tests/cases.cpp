#include "cases.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "thread_pool.hpp"

namespace tilewise_tests {
namespace {

constexpr std::array<setting, 8> settings_in_order = {
    {{1, 0}, {2, 1}, {3, 0}, {7, 1}, {1, 1}, {2, 0}, {3, 1}, {7, 0}}};

extents output_extents(const attention_case& which) {
    return {which.batch, which.heads, which.queries, which.value_dim};
}

tilewise::options options_for(const attention_case& which, const results& into) {
    return {
        .scale = which.scale, .causal = which.causal, .lse = into.lse.view(), .arithmetic = which.arithmetic};
}

}  // namespace

tilewise::element_type result_type(const attention_case& which) {
    using tilewise::element_type;
    return which.types[3] == element_type::f64 ? element_type::f64 : element_type::f32;
}

attention_case in_f64(attention_case which) {
    which.types.fill(tilewise::element_type::f64);
    return which;
}

std::string show(tilewise::causal which) {
    if (which == tilewise::causal::none) { return "none"; }
    return which == tilewise::causal::bottom_right ? "bottom_right" : "top_left";
}

std::string show(tilewise::arithmetic which) {
    return which == tilewise::arithmetic::exact ? "exact" : "fastest";
}

bool has_fastest() {
    attention_case which;
    which.types = bf16_types;
    which.arithmetic = tilewise::arithmetic::fastest;
    const inputs given = make_inputs(which);
    const results made = make_results(which);
    return tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), made.out.view(),
                                    options_for(which, made))
               .arithmetic == tilewise::arithmetic::fastest;
}

std::string show(const attention_case& which) {
    std::ostringstream text;
    text << "batch " << which.batch << ", heads " << which.heads << "/" << which.kv_heads << ", queries "
         << which.queries << ", keys " << which.keys << ", dims " << which.key_dim << "/" << which.value_dim
         << ", causal " << show(which.causal) << ", scale "
         << (which.scale ? show(*which.scale) : std::string("default")) << ", layouts";
    for (const std::size_t index : which.layouts) { text << " '" << all_layouts()[index].name << "'"; }
    text << ", types";
    for (const tilewise::element_type type : which.types) { text << " " << show(type); }
    text << ", " << show(which.arithmetic) << ", seed " << which.seed;
    return text.str();
}

std::span<const setting> all_settings() { return settings_in_order; }

inputs make_inputs(const attention_case& which) {
    const extents q = {which.batch, which.heads, which.queries, which.key_dim};
    const extents k = {which.batch, which.kv_heads, which.keys, which.key_dim};
    const extents v = {which.batch, which.kv_heads, which.keys, which.value_dim};
    const auto layouts = all_layouts();
    inputs made{{q, layouts[which.layouts[0]], which.types[0]},
                {k, layouts[which.layouts[1]], which.types[1]},
                {v, layouts[which.layouts[2]], which.types[2]}};
    made.q.fill_normal(3 * which.seed);
    made.k.fill_normal(3 * which.seed + 1);
    made.v.fill_normal(3 * which.seed + 2);
    return made;
}

results make_results(const attention_case& which, const layout& where) {
    extents rows = output_extents(which);
    rows[3] = 1;
    return {{output_extents(which), where, which.types[3]}, {rows, where, result_type(which)}};
}

std::string first_difference(const results& got, const results& want) {
    return first_difference(
        {{"out", got.out.view(), want.out.view()}, {"lse", got.lse.view(), want.lse.view()}});
}

results naive(const attention_case& which, const inputs& given) {
    results made = make_results(which);
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), made.out.view(),
                                   options_for(which, made));
    return made;
}

results tiled(const attention_case& which, const inputs& given, const setting& how) {
    results made = make_results(which, all_layouts()[which.layouts[3]]);
    tilewise::options options = options_for(which, made);
    options.threads = how.threads;
    options.scratch_budget = how.scratch_budget;
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), made.out.view(), threaded(options));
    return made;
}

void check_exact(const attention_case& which, const inputs& given, std::span<const setting> settings) {
    const results want = naive(which, given);
    for (const setting& how : settings) {
        INFO(show(which));
        INFO("threads ", how.threads, ", scratch budget ", how.scratch_budget);
        const results got = tiled(which, given, how);
        CHECK(first_difference(got, want) == "");
        CHECK(got.out.damage_to_gaps() == "");
        CHECK(got.lse.damage_to_gaps() == "");
    }
}

void check_exact(const attention_case& which, const inputs& given, std::size_t number) {
    const auto every = all_settings();
    const std::array some = {every[number % every.size()], every[(number + 3) % every.size()],
                             every[(number + 6) % every.size()]};
    check_exact(which, given, std::span(some).first(isa_is_slow() || test_effort() == effort::quick ? 1 : 3));
}

}  // namespace tilewise_tests

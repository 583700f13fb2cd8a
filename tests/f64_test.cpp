// Computing in f64: the bits of the oracle over shapes, layouts, masks and settings; 2^f and tanh to the last
// place; the distance from the textbook's formula; and what does not go with f64.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "all_results.hpp"
#include "mask_cases.hpp"
#include "refusals.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::element_type;

attention_case random_sizes(random_source& random) {
    attention_case sizes;
    sizes.batch = random.between(1, 2);
    sizes.kv_heads = random.between(1, 2);
    sizes.heads = sizes.kv_heads * random.between(1, 3);
    sizes.queries = random.between(1, random.between(1, 3) == 1 ? 200 : 20);
    sizes.keys = random.between(1, random.between(1, 3) == 1 ? 700 : 150);
    sizes.key_dim = random.between(1, random.between(1, 4) == 1 ? 130 : 40);
    sizes.value_dim = random.between(1, random.between(1, 4) == 1 ? 130 : 40);
    sizes.seed = random.bits();
    return in_f64(sizes);
}

/// Random options, without those that f64 does not have.
struct f64_masks {
    mask_case made;
    std::vector<double> bias;

    f64_masks(random_source& random, const attention_case& sizes) : made(random_masks(random, sizes)) {
        made.how.score_function = {};
        if (made.how.scale.has_value() && random.between(0, 1) == 0) {
            made.how.scale.reset();
            made.how.scale_f64 = random.precise_normal();
        }
        tilewise::const_tensor& view = made.how.bias;
        if (view.data == nullptr) { return; }
        view.type = random.between(0, 1) == 0 ? element_type::f32 : element_type::f64;
        view.data = made.bias.data();
        if (view.type == element_type::f32) { return; }
        for (const float value : made.bias) {
            bias.push_back(std::isinf(value) ? static_cast<double>(value)
                                             : static_cast<double>(value) + random.precise_normal());
        }
        view.data = bias.data();
    }
};

all_results naive(const mask_case& of, const inputs& given, const std::vector<count>& rows) {
    all_results want(of.sizes, rows);
    tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), want.out.view(),
                                   want.asked_for(of.how));
    return want;
}

void check_bits(const mask_case& of, const inputs& given) {
    INFO(show(of.sizes), ", ", of.names);
    const std::vector<count> rows = every(7, of.sizes.queries);
    const all_results want = naive(of, given, rows);
    for (const int threads : {1, 2, 3}) {
        tilewise::options how = of.how;
        how.threads = threads;
        how.scratch_budget = threads == 2 ? 1 : 0;
        CHECK(first_difference(attend(of.sizes, given, how, rows), want) == "");
        if (isa_is_slow() || test_effort() == effort::quick) { return; }
    }
}

/// Numbers of ulp of `exact`, as a double, between a value and it.
double ulps(double value, long double exact) {
    int exponent = 0;
    std::frexp(static_cast<double>(exact), &exponent);
    return static_cast<double>(std::fabs(std::ldexp(static_cast<long double>(value) - exact, 53 - exponent)));
}

/// Checks that are only as good as a long double that is longer than a double: valgrind's is not.
bool has_long_double() {
    const volatile long double one = 1.0L;
    return std::numeric_limits<long double>::digits > 60 && one + 0x1p-60L != one;
}

}  // namespace

TEST_CASE("f64: every pair of lengths has the oracle's bits") {
    std::size_t number = 0;
    for (const count queries : {1, 2, 3, 7, 8, 9, 24, 25, 47, 130}) {
        for (const count keys : {1, 5, 127, 128, 129, 300}) {
            const attention_case which =
                in_f64({.heads = 2,
                        .queries = queries,
                        .keys = keys,
                        .key_dim = 1 + static_cast<count>(number % 19),
                        .value_dim = 1 + static_cast<count>(number % 33),
                        .causal = all_causal[number % 3],
                        .layouts = {number % all_layouts().size(), number / 2 % all_layouts().size(),
                                    number / 3 % all_layouts().size(), number % output_layouts},
                        .seed = number + 1});
            check_exact(which, make_inputs(which), number++);
        }
    }
}

TEST_CASE("f64: common head sizes have the oracle's bits") {
    std::size_t number = 0;
    for (const std::array<count, 2> dims :
         {std::array<count, 2>{64, 64}, {128, 128}, {192, 128}, {80, 80}, {256, 256}}) {
        const attention_case which = in_f64({.heads = 4,
                                             .kv_heads = 2,
                                             .queries = by_effort(20, 40, 150),
                                             .keys = by_effort(150, 150, 400),
                                             .key_dim = dims[0],
                                             .value_dim = dims[1],
                                             .causal = tilewise::causal::bottom_right});
        check_exact(which, make_inputs(which), number++);
    }
}

TEST_CASE("f64: key heads that take turns have the oracle's bits") {
    const attention_case which = in_f64({.batch = 2,
                                         .heads = 6,
                                         .kv_heads = 3,
                                         .keys = 2200,
                                         .key_dim = 64,
                                         .value_dim = 50,
                                         .layouts = {1, 1, 1, 1}});
    check_exact(which, make_inputs(which), all_settings());
}

TEST_CASE("f64: keys that are cut into parts have the oracle's bits") {
    for (const count queries : {1, 3, 4}) {  // no more than a panel has
        attention_case which =
            in_f64({.queries = queries, .keys = by_effort(2000, 2000, 9000), .key_dim = 64, .value_dim = 64});
        const inputs given = make_inputs(which);
        const results made = make_results(which);
        const tilewise::plan plan = tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(),
                                                             made.out.view(), {.threads = 3});
        if (plan.threads > 1) { CHECK(plan.key_parts > 1); }
        check_exact(which, given, std::array{setting{3, 0}, setting{2, 1}});
    }
}

TEST_CASE("f64: any combination of masks has the oracle's bits") {
    random_source random(64);
    for (count number = 0; number < by_effort(40, 80, 400); ++number) {
        const attention_case sizes = random_sizes(random);
        const f64_masks masks(random, sizes);
        check_bits(masks.made, make_inputs(sizes));
    }
}

TEST_CASE("f64: rare values reach the rows that see them and no others") {
    random_source random(65);
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double inf = std::numeric_limits<double>::infinity();
    const double values[] = {nan, inf, -inf, 1e-310, -0.0, 1e308, -1e300, 0x1p50, -0x1.8p51};
    for (count number = 0; number < by_effort(40, 80, 300); ++number) {
        const attention_case sizes = random_sizes(random);
        const f64_masks masks(random, sizes);
        const inputs given = make_inputs(sizes);
        for (const owned_tensor* tensor : {&given.k, &given.v, &given.k, &given.v}) {
            const tilewise::tensor& view = tensor->view();
            tensor->f64(0, 0, random.between(0, view.tokens() - 1), random.between(0, view.head_dim() - 1)) =
                values[random.between(0, 8)];
        }
        check_bits(masks.made, given);
    }
}

TEST_CASE("f64: scores of any size have the oracle's bits, and one visible key gives its value") {
    random_source random(66);
    for (int exponent = -1070; exponent <= 1020; exponent += 10) {
        const attention_case which =
            in_f64({.queries = 3, .keys = exponent % 20 == 0 ? 1 : 5, .key_dim = 1, .value_dim = 2});
        const inputs given = make_inputs(which);
        for (count i = 0; i < 3; ++i) {
            given.q.f64(0, 0, i, 0) = std::ldexp(1.0 + random.precise_normal() / 8, exponent);
        }
        INFO("exponent ", exponent);
        check_exact(which, given, std::array{setting{}});
        if (which.keys > 1) { continue; }
        const results got = tiled(which, given);
        for (count i = 0; i < 3; ++i) {
            const double want = given.v.f64(0, 0, 0, 1);
            CHECK(std::fabs(got.out.f64(0, 0, i, 1) - want) <= std::fabs(want) * 0x1p-52);
        }
    }
}

TEST_CASE("f64: packed sequences and pages have the bits of sequences by themselves") {
    // Two sequences of 70 and 200 keys, in pages of 128 and in a packed tensor.
    const attention_case packed =
        in_f64({.heads = 2, .queries = 50, .keys = 270, .key_dim = 20, .value_dim = 9});
    const inputs given = make_inputs(packed);
    const std::array<count, 3> query_starts = {0, 20, 50};
    const std::array<count, 3> key_starts = {0, 70, 270};
    const std::array<count, 2> lengths = {70, 200};
    const results got = make_results(packed);
    const tilewise::options how = {.causal = tilewise::causal::bottom_right,
                                   .query_starts = query_starts,
                                   .key_starts = key_starts,
                                   .lse = got.lse.view(),
                                   .threads = 1};
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);

    const extents pool = {4, 1, 128, 0};
    const std::array<std::int32_t, 4> table = {3, 0, 1, 2};  // pages of the first sequence, and of the second
    const owned_tensor k({pool[0], pool[1], pool[2], 20}, dense(), element_type::f64);
    const owned_tensor v({pool[0], pool[1], pool[2], 9}, dense(), element_type::f64);
    for (std::size_t s = 0; s < 2; ++s) {
        for (count j = 0; j < lengths[s]; ++j) {
            const count page = table[2 * s + static_cast<std::size_t>(j / 128)];
            for (count i = 0; i < 20; ++i) {
                k.f64(page, 0, j % 128, i) = given.k.f64(0, 0, key_starts[s] + j, i);
            }
            for (count i = 0; i < 9; ++i) {
                v.f64(page, 0, j % 128, i) = given.v.f64(0, 0, key_starts[s] + j, i);
            }
        }
    }
    tilewise::options paged = how;
    const results in_pages = make_results(packed);
    paged.key_starts = {};
    paged.key_lengths = lengths;
    paged.block_table = {table.data(), element_type::i32, {2, 1, 1, 2}, {2, 0, 0, 1}};
    paged.lse = in_pages.lse.view();
    tilewise::attention(given.q.view(), k.view(), v.view(), in_pages.out.view(), paged);
    CHECK(first_difference(in_pages, got) == "");

    const results alone = make_results(packed);
    using tilewise::axis;
    for (std::size_t s = 0; s < 2; ++s) {
        const count queries = query_starts[s + 1] - query_starts[s];
        tilewise::attention(given.q.view().slice(axis::tokens, query_starts[s], queries),
                            given.k.view().slice(axis::tokens, key_starts[s], lengths[s]),
                            given.v.view().slice(axis::tokens, key_starts[s], lengths[s]),
                            alone.out.view().slice(axis::tokens, query_starts[s], queries),
                            {.causal = tilewise::causal::bottom_right, .threads = 1});
    }
    CHECK(first_difference(got.out.view(), alone.out.view()) == "");
}

TEST_CASE("f64: a caller's workspace is enough, and makes no difference") {
    const attention_case which = in_f64({.heads = 2, .queries = 90, .keys = 300, .key_dim = 33});
    const inputs given = make_inputs(which);
    const results want = tiled(which, given);
    const results got = make_results(which);
    tilewise::options how = {.lse = got.lse.view(), .threads = 1};
    const tilewise::plan plan =
        tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
    std::vector<std::byte> memory(plan.scratch_bytes + 63);
    how.workspace = memory;
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), got.out.view(), how);
    CHECK(first_difference(got.out.view(), want.out.view()) == "");
    CHECK(plan.scratch_bytes_per_thread <= 512 * 1024);
}

TEST_CASE("f64: a weight is at most 1 ulp off") {
    if (!has_long_double()) { return; }
    // Of two keys with the scores 0 and t, far apart, the sum of weights rounds to 1, and the output is the
    // second one's weight.
    const count points = by_effort(2000, 50'000, 1'000'000);
    const attention_case which = in_f64({.queries = points, .keys = 2, .key_dim = 1, .value_dim = 1});
    const inputs given = make_inputs(which);
    random_source random(67);
    given.k.f64(0, 0, 0, 0) = 0.0;
    given.k.f64(0, 0, 1, 0) = 1.0;
    given.v.f64(0, 0, 0, 0) = 0.0;
    given.v.f64(0, 0, 1, 0) = 1.0;
    for (count i = 0; i < points; ++i) {
        given.q.f64(0, 0, i, 0) =
            -40.0 - 500.0 * static_cast<double>(random.uniform()) + 0x1p-20 * random.precise_normal();
    }
    const results got = tiled(which, given);
    constexpr double c = 0x1.71547652b82fep+0;
    double largest = 0.0;
    for (count i = 0; i < points; ++i) {
        const double t = given.q.f64(0, 0, i, 0);
        const double r = std::nearbyint(t * c);
        const double f = std::fma(t, c, -r);
        const double weight = std::ldexp(got.out.f64(0, 0, i, 0), -static_cast<int>(r));
        largest = std::max(largest, ulps(weight, std::exp2(static_cast<long double>(f))));
    }
    MESSAGE("2^f: ", largest, " ulp");
    CHECK(largest <= 1.0);
}

TEST_CASE("f64: tanh is at most 2 ulp off") {
    if (!has_long_double()) { return; }
    const count points = by_effort(2000, 50'000, 1'000'000);
    const attention_case which = in_f64({.queries = points, .keys = 1, .key_dim = 1, .value_dim = 1});
    const inputs given = make_inputs(which);
    random_source random(68);
    given.k.f64(0, 0, 0, 0) = 1.0;
    for (count i = 0; i < points; ++i) {
        const double size = std::array{1.0, 20.0, 0x1p-10, 0.7}[static_cast<std::size_t>(i % 4)];
        given.q.f64(0, 0, i, 0) =
            i % 50 == 0 ? std::ldexp(random.precise_normal(), static_cast<int>(random.between(-1000, 10)))
                        : size * (2.0 * static_cast<double>(random.uniform()) - 1.0 +
                                  0x1p-24 * random.precise_normal());
    }
    all_results got(which, {});
    attend(given, {.scale = 1.0F, .soft_cap = 1.0F}, got);
    double largest = 0.0;
    for (count i = 0; i < points; ++i) {
        const long double exact = std::tanh(static_cast<long double>(given.q.f64(0, 0, i, 0)));
        if (std::fabs(exact) < 0x1p-1000L) { continue; }
        largest = std::max(largest, ulps(got.row_maximum.f64(0, 0, i, 0), exact));
    }
    MESSAGE("tanh: ", largest, " ulp");
    CHECK(largest <= 2.0);
}

namespace {

/// One row of the textbook's formula in long double, and how far rounding in f64 may take the result from it,
/// to first order and with all errors at their largest.
struct textbook_row {
    std::vector<long double> out;
    std::vector<long double> bound;
    long double lse = 0.0L;
    long double lse_bound = 0.0L;
};

textbook_row textbook(const attention_case& which, const inputs& given, count i) {
    constexpr long double u = 0x1p-53L;
    const long double scale = 1.0L / std::sqrt(static_cast<long double>(which.key_dim));
    const auto keys = static_cast<std::size_t>(which.keys);
    std::vector<long double> weights(keys);
    std::vector<long double> errors(keys);  // of scores, with that of the exponential
    long double largest = -std::numeric_limits<long double>::infinity();
    for (std::size_t j = 0; j < keys; ++j) {
        long double size = 0.0L;
        for (count x = 0; x < which.key_dim; ++x) {
            const long double product = static_cast<long double>(given.q.f64(0, 0, i, x)) *
                                        static_cast<long double>(given.k.f64(0, 0, static_cast<count>(j), x));
            weights[j] += product * scale;
            size += std::fabs(product) * scale;
        }
        errors[j] =
            u * (static_cast<long double>(which.key_dim) * size + 4.0L * std::fabs(weights[j]) + 2.0L);
        largest = std::max(largest, weights[j]);
    }
    textbook_row row;
    long double sum = 0.0L;
    for (long double& weight : weights) { sum += weight = std::exp(weight - largest); }
    row.lse = largest + std::log(sum);
    // Chains of 128 keys, and of chunks.
    const long double chains = u * (128.0L + static_cast<long double>(which.keys) / 128.0L + 4.0L);
    row.lse_bound = chains + 4.0L * u * (std::fabs(row.lse) + 1.0L);
    for (std::size_t j = 0; j < keys; ++j) { row.lse_bound += weights[j] / sum * errors[j]; }
    for (count x = 0; x < which.value_dim; ++x) {
        long double out = 0.0L;
        long double bound = 0.0L;
        for (std::size_t j = 0; j < keys; ++j) {
            out += weights[j] / sum * static_cast<long double>(given.v.f64(0, 0, static_cast<count>(j), x));
        }
        for (std::size_t j = 0; j < keys; ++j) {
            const auto value = static_cast<long double>(given.v.f64(0, 0, static_cast<count>(j), x));
            bound +=
                weights[j] / sum * (std::fabs(value - out) * errors[j] + 2.0L * chains * std::fabs(value));
        }
        row.out.push_back(out);
        row.bound.push_back(bound);
    }
    return row;
}

}  // namespace

TEST_CASE("f64: the textbook's formula in long double") {
    if (!has_long_double()) { return; }
    long double most = 0.0L;  // of the bound
    for (const count keys : {1, 10, 128, 1000, 3000}) {
        for (const float size : {0.1F, 1.0F, 10.0F}) {
            const attention_case which =
                in_f64({.queries = 10, .keys = keys, .key_dim = 64, .value_dim = 8, .seed = 70});
            const inputs given = make_inputs(which);
            given.q.fill_normal(71, size);
            const results got = tiled(which, given);
            for (count i = 0; i < which.queries; ++i) {
                const textbook_row want = textbook(which, given, i);
                const auto lse = static_cast<long double>(got.lse.f64(0, 0, i, 0));
                CHECK(std::fabs(lse - want.lse) <= want.lse_bound);
                for (std::size_t x = 0; x < want.out.size(); ++x) {
                    const auto out = static_cast<long double>(got.out.f64(0, 0, i, static_cast<count>(x)));
                    most = std::max(most, std::fabs(out - want.out[x]) / want.bound[x]);
                }
            }
        }
    }
    MESSAGE("largest error: ", static_cast<double>(most), " of the bound");
    CHECK(most <= 1.0L);
}

TEST_CASE("f64: streams, caches, merging, rotary embeddings and the ONNX operator refuse it by name") {
    std::vector<double> memory(64, 0.5);
    const tilewise::tensor view = tilewise::bhsd(memory.data(), 1, 1, 4, 8);
    const std::string floats = ": element type f64 given, it must be f32, f16 or bf16";
    CHECK(refusal_of([&] { tilewise::attention_stream(view, {.kv_heads = 1, .value_dim = 8}); }) ==
          "tilewise: q" + floats);
    tilewise::kv_cache cache({.kv_heads = 1, .head_dim = 8, .value_dim = 8, .pages = 1});
    const int sequence = cache.add();
    CHECK(refusal_of([&] { cache.append(sequence, view, view); }) == "tilewise: k" + floats);
    CHECK(refusal_of([&] {
              tilewise::kv_cache(
                  {.kv_heads = 1, .head_dim = 8, .value_dim = 8, .k_type = element_type::f64, .pages = 1});
          }).find("k_type: number 11 given") != std::string::npos);
    const tilewise::partial_result part{view, view.slice(tilewise::axis::head_dim, 0, 1)};
    CHECK(refusal_of([&] { tilewise::merge({&part, 1}, view); }).find(floats) != std::string::npos);
    const std::array<std::int64_t, 4> shape = {1, 1, 4, 8};
    const tilewise::onnx::const_array input{memory.data(), tilewise::onnx::data_type::float64, shape};
    CHECK(refusal_of([&] {
              tilewise::onnx::attention({.q = input, .k = input, .v = input}, {},
                                        {.y = {memory.data(), tilewise::onnx::data_type::float64, shape}});
          }) == "tilewise: Q: element type float64 given, it must be float32");
}

TEST_CASE("f64: what does not go with it is refused by name") {
    const attention_case sizes = in_f64(refused_sizes);
    const inputs given = make_inputs(sizes);
    const results made = make_results(sizes);
    const char* const names[] = {"q", "k", "v", "out"};
    for (std::size_t place = 0; place < 4; ++place) {
        for (const element_type other : {element_type::f32, element_type::bf16}) {
            attention_case mixed = sizes;
            mixed.types[place] = other;
            INFO(names[place], " in ", show(other));
            // q decides what is computed in, and the first other one is wrong.
            refuses(make_inputs(mixed), make_results(mixed).out, {},
                    {place == 0 ? "k: element type f64 given, it must be f32"
                                : std::string(names[place]) + ": element type " + show(other) +
                                      " given, it must be f64"});
        }
    }
    const auto refuses_options = [&](const tilewise::options& how, const std::vector<std::string>& parts) {
        refuses(given, made.out, how, parts);
    };
    const results in_f32 = make_results(refused_sizes);
    refuses_options({.lse = in_f32.lse.view()}, {"lse: element type f32 given, it must be f64"});
    refuses_options({.extra = {.entropy = in_f32.lse.view()}},
                    {"extra.entropy: element type f32 given, it must be f64"});
    refuses(make_inputs(refused_sizes), in_f32.out, {.lse = made.lse.view()},
            {"lse: element type f64 given, it must be f32"});
    const owned_tensor half({1, 1, 1, sizes.keys}, dense(), element_type::f16);
    refuses_options({.bias = half.view()}, {"bias: element type f16 given, it must be f64 or f32"});
    refuses_options({.score_function = {[](void*, const tilewise::score_tile&) noexcept {}, nullptr}},
                    {"score_function", "f64"});
    const double infinite = std::numeric_limits<double>::infinity();
    refuses_options({.scale_f64 = infinite}, {"scale_f64: inf given"});
    refuses_options({.scale = 1.0F, .scale_f64 = 1.0}, {"scale_f64: given beside scale"});
    refuses({.scale_f64 = 1.0}, {"scale_f64: given, q must be f64 then"});
    CHECK_NOTHROW(tilewise::attention(given.q.view(), given.k.view(), given.v.view(), made.out.view(),
                                      {.scale_f64 = 1e300}));
}

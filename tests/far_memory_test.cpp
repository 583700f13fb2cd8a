// Offsets and lengths beyond 2^31 and 2^32, in address space that is nearly all untouched.

#include <doctest/doctest.h>

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tilewise/reference.hpp>
#include <vector>

#include "cases.hpp"
#include "refusals.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;

/// Zeros that take no memory until they are touched; none if the system does not give so many addresses.
class sparse_memory {
public:
    explicit sparse_memory(std::size_t bytes)
        : bytes_(bytes),
          data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0)) {}
    ~sparse_memory() {
        if (is_there()) { munmap(data_, bytes_); }
    }
    sparse_memory(const sparse_memory&) = delete;
    sparse_memory& operator=(const sparse_memory&) = delete;

    [[nodiscard]] bool is_there() const { return data_ != MAP_FAILED; }
    [[nodiscard]] float* floats() const { return static_cast<float*>(data_); }

private:
    std::size_t bytes_;
    void* data_;
};

/// The same elements with other strides.
tilewise::tensor spread(const tilewise::const_tensor& from, float* to, const extents& strides) {
    const tilewise::tensor made{to, tilewise::element_type::f32, from.extents, strides};
    for (count b = 0; b < from.batch(); ++b) {
        for (count h = 0; h < from.heads(); ++h) {
            for (count t = 0; t < from.tokens(); ++t) {
                for (count i = 0; i < from.head_dim(); ++i) {
                    *element(made, b, h, t, i) = *element(from, b, h, t, i);
                }
            }
        }
    }
    return made;
}

}  // namespace

TEST_CASE("far memory: tokens, heads and elements that are up to 2^32 elements apart") {
    const attention_case which{
        .heads = 2, .kv_heads = 2, .queries = 5, .keys = 130, .key_dim = 3, .value_dim = 2};
    const inputs given = make_inputs(which);
    const results want = naive(which, given);
    constexpr count far = count{1} << 32;
    const sparse_memory memory(std::size_t{6} * far * sizeof(float));
    if (!memory.is_there()) {
        MESSAGE("skipped: no address space");
        return;
    }
    float* const second = memory.floats() + 7;
    const extents by_token = {0, 4, (far - 6000) / 130 / 2, 1};
    const extents by_head = {0, far, 3, 1};
    const extents by_element = {0, 1000, 1, far};
    const tilewise::options how{.lse = want.lse.view()};
    for (const extents& strides : {by_token, by_head, by_element}) {
        const tilewise::tensor k = spread(given.k.view(), memory.floats(), strides);
        const results got = make_results(which);
        tilewise::attention(given.q.view(), k, given.v.view(), got.out.view(), how);
        CHECK(first_difference(got.out.view(), want.out.view()) == "");
        const tilewise::tensor q = spread(given.q.view(), memory.floats(), strides);
        const tilewise::tensor out = spread(want.out.view(), second + 5 * far / 2, {0, far, far / 8, 1});
        tilewise::attention(q, given.k.view(), given.v.view(), out, how);
        CHECK(first_difference(out, want.out.view()) == "");
    }
}

TEST_CASE("far memory: more than 2^33 keys, of which a window is seen") {
    constexpr count keys = (count{1} << 33) + 300;
    constexpr count dim = 2;
    constexpr count first = (count{1} << 33) - 128;  // a multiple of 128, so that chunks are the same
    const sparse_memory memory(std::size_t{keys} * dim * sizeof(float));
    if (!memory.is_there()) {
        MESSAGE("skipped: no address space");
        return;
    }
    float* const tail = memory.floats() + first * dim;
    random_source random(5);
    for (count n = 0; n < (keys - first) * dim; ++n) { tail[n] = random.normal(); }
    const attention_case which{.queries = 60, .keys = keys - first, .key_dim = dim, .value_dim = dim};
    const inputs given = make_inputs(which);
    const auto k = tilewise::bhsd(memory.floats(), 1, 1, keys, dim);
    const auto k_tail = tilewise::bhsd(tail, 1, 1, keys - first, dim);
    const tilewise::options how{.causal = tilewise::causal::bottom_right, .window_left = 200};
    const results want = make_results(which);
    const results got = make_results(which);
    tilewise::reference::attention(given.q.view(), k_tail, k_tail, want.out.view(), how);
    tilewise::attention(given.q.view(), k, k, got.out.view(), how);
    CHECK(first_difference(got.out.view(), want.out.view()) == "");
    const tilewise::plan plan = tilewise::plan_attention(given.q.view(), k, k, got.out.view(), how);
    CHECK(plan.visible_scores == 60.0 * 201.0);
}

TEST_CASE("far memory: 2^40 keys that share one place, of which the last are seen") {
    const std::vector<float> numbers = {1.0F, 2.0F, 3.0F};
    const auto attend = [&](count keys) {
        const tilewise::const_tensor k{
            numbers.data(), tilewise::element_type::f32, {1, 1, keys, 3}, {0, 0, 0, 1}};
        std::vector<float> out(3);
        tilewise::attention(tilewise::bhsd(numbers.data(), 1, 1, 1, 3), k, k,
                            tilewise::bhsd(out.data(), 1, 1, 1, 3), {.window_left = 1000});
        return out;
    };
    CHECK(attend(count{1} << 40) == attend(2048));
}

TEST_CASE("far memory: strides and lengths whose product 63 bits cannot count are refused, in every view") {
    const attention_case which{.heads = 2, .queries = 3, .keys = 4, .key_dim = 2, .value_dim = 2};
    const inputs given = make_inputs(which);
    const results into = make_results(which);
    constexpr count largest = std::numeric_limits<count>::max();
    std::array<tilewise::const_tensor, 3> read = {given.q.view(), given.k.view(), given.v.view()};
    std::array<tilewise::tensor, 2> written = {into.out.view(), into.lse.view()};
    const auto refuse_all = [&] {
        const auto& [q, k, v] = read;
        const auto& [out, lse] = written;
        const tilewise::options how{.lse = lse};
        const std::array<std::function<void()>, 3> calls = {
            [&, &q = q, &k = k, &v = v, &out = out] { tilewise::attention(q, k, v, out, how); },
            [&, &q = q, &k = k, &v = v, &out = out] { tilewise::reference::attention(q, k, v, out, how); },
            [&, &q = q, &k = k, &v = v, &out = out] {
                static_cast<void>(tilewise::plan_attention(q, k, v, out, how));
            }};
        for (const auto& call : calls) {
            const std::string refusal = refusal_of(call);
            CHECK_MESSAGE(refusal.find("63 bits") != std::string::npos, refusal);
        }
    };
    const auto spoil = [&](auto& view) {
        const auto sound = view;
        for (const count stride : {largest, largest / 2, largest / 4, largest / 8, -largest, -largest - 1}) {
            view.strides[2] = stride;
            refuse_all();
        }
        view = sound;
        for (const auto& [tokens, stride] : std::array<std::array<count, 2>, 3>{
                 {{largest, 2}, {count{1} << 40, count{1} << 23}, {count{1} << 62, -2}}}) {
            view.extents[2] = tokens;
            view.strides[2] = stride;
            refuse_all();
        }
        view = sound;
    };
    for (tilewise::const_tensor& view : read) { spoil(view); }
    for (tilewise::tensor& view : written) { spoil(view); }
    CHECK(into.out.damage() == "");
    CHECK(into.lse.damage() == "");
}

TEST_CASE("far memory: more query rows than 63 bits can count, in one place, are refused") {
    const std::vector<float> zeros(4);
    constexpr count many = count{1} << 32;
    const tilewise::const_tensor same{zeros.data(), tilewise::element_type::f32, {many, many, 1, 0}, {}};
    const tilewise::tensor nothing{nullptr, tilewise::element_type::f32, {many, many, 1, 0}, {}};
    const std::string refusal = refusal_of([&] { tilewise::attention(same, same, same, nothing); });
    CHECK(refusal.find("the number of rows must fit in 63 bits") != std::string::npos);
}

TEST_CASE("far memory: views and workspaces that reach beyond all addresses are refused") {
    const attention_case which{.heads = 2, .queries = 3, .keys = 4, .key_dim = 2, .value_dim = 2};
    const inputs given = make_inputs(which);
    const results into = make_results(which);
    constexpr std::uintptr_t last = std::numeric_limits<std::uintptr_t>::max();
    tilewise::const_tensor k = given.k.view();
    const auto refusal_with = [&](const tilewise::options& how) {
        return refusal_of(
            [&] { tilewise::attention(given.q.view(), k, given.v.view(), into.out.view(), how); });
    };
    const auto has = [](const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    };
    std::byte place{};
    CHECK(has(refusal_with({.workspace = {&place, last}}), "workspace: "));
    k.data = reinterpret_cast<const void*>(last - 3);
    CHECK(has(refusal_with({}), "k: data at address"));
    k.data = reinterpret_cast<const void*>(std::uintptr_t{16});
    k.strides[2] = -2;
    CHECK(has(refusal_with({}), "all must have addresses"));
    CHECK(into.out.damage() == "");
}

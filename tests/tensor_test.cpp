// The views: where the constructors put the elements, slices, and what they refuse.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "refusals.hpp"
#include "support.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
using tilewise::axis;
using tilewise::element_type;

/// The place of element (b, h, t, i) in the memory.
count place(const tilewise::const_tensor& of, const float* memory, count b, count h, count t, count i) {
    return element(of, b, h, t, i) - memory;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("tensor: the common layouts put elements where they say") {
    const std::vector<float> memory(1000);
    const float* const data = memory.data();
    const auto by_head = tilewise::bhsd(data, 2, 3, 4, 5);
    CHECK(place(by_head, data, 1, 2, 3, 4) == ((1 * 3 + 2) * 4 + 3) * 5 + 4);
    const auto by_token = tilewise::bshd(data, 2, 4, 3, 5);
    CHECK(by_token.extents == std::array<count, 4>{2, 3, 4, 5});
    CHECK(place(by_token, data, 1, 2, 3, 4) == ((1 * 4 + 3) * 3 + 2) * 5 + 4);
    const auto rows = tilewise::row_values(data, 2, 3, 4);
    CHECK(rows.head_dim() == 1);
    CHECK(place(rows, data, 1, 2, 3, 0) == (1 * 3 + 2) * 4 + 3);
    CHECK(by_head.batch() == 2);
    CHECK(by_head.heads() == 3);
    CHECK(by_head.tokens() == 4);
    CHECK(by_head.head_dim() == 5);
}

TEST_CASE("tensor: packed query, key and value heads") {
    const std::vector<float> memory(1000);
    const float* const data = memory.data();
    const auto views = tilewise::packed_qkv(data, 2, 3, 4, 2, 5);
    CHECK(views.q.extents == std::array<count, 4>{2, 4, 3, 5});
    CHECK(views.k.extents == std::array<count, 4>{2, 2, 3, 5});
    CHECK(views.v.extents == std::array<count, 4>{2, 2, 3, 5});
    CHECK(place(views.q, data, 1, 3, 2, 4) == ((1 * 3 + 2) * 8 + 3) * 5 + 4);
    CHECK(place(views.k, data, 1, 1, 2, 4) == ((1 * 3 + 2) * 8 + 5) * 5 + 4);
    CHECK(place(views.v, data, 1, 1, 2, 4) == ((1 * 3 + 2) * 8 + 7) * 5 + 4);
}

TEST_CASE("tensor: views of const and of writable memory") {
    std::vector<float> memory(60);
    const auto writable = tilewise::bhsd(memory.data(), 1, 3, 4, 5);
    static_assert(std::is_same_v<decltype(writable), const tilewise::tensor>);
    const tilewise::const_tensor readable = writable;
    CHECK(readable.data == writable.data);
    CHECK(readable.strides == writable.strides);
    static_assert(!std::is_convertible_v<tilewise::const_tensor, tilewise::tensor>);
}

TEST_CASE("tensor: views of 16-bit memory count in its elements") {
    std::vector<tilewise::float16> memory(120);
    const auto whole = tilewise::bhsd(memory.data(), 2, 3, 4, 5);
    static_assert(std::is_same_v<decltype(whole), const tilewise::tensor>);
    CHECK(whole.type == tilewise::element_type::f16);
    CHECK(whole.slice(axis::heads, 1, 2).data == memory.data() + 20);
    const std::vector<tilewise::bfloat16> more(120);
    const tilewise::const_tensor by_token = tilewise::bshd(std::span(more), 2, 4, 3, 5);
    CHECK(by_token.type == tilewise::element_type::bf16);
    const auto packed = tilewise::packed_qkv(more.data(), 1, 4, 2, 2, 5);
    CHECK(packed.v.type == tilewise::element_type::bf16);
    CHECK(packed.v.data == more.data() + 20);
}

TEST_CASE("tensor: views of blocks count in elements") {
    const std::vector<tilewise::q8_0_block> memory(24);
    const auto whole = tilewise::bhsd(memory.data(), 1, 2, 4, 96);
    CHECK(whole.type == tilewise::element_type::q8_0);
    CHECK(whole.strides == std::array<count, 4>{768, 384, 96, 1});
    CHECK(whole.slice(axis::heads, 1, 1).data == memory.data() + 12);
    CHECK(whole.slice(axis::tokens, 1, 1).data == memory.data() + 3);
    CHECK(whole.slice(axis::head_dim, 32, 64).data == memory.data() + 1);
    CHECK(has(refusal_of([&] { static_cast<void>(whole.slice(axis::head_dim, 16, 32)); }), "32 elements"));
    const std::span span(memory);
    CHECK(tilewise::bshd(span, 1, 4, 2, 96).data == memory.data());
    CHECK(has(refusal_of([&] { static_cast<void>(tilewise::bshd(span, 1, 4, 2, 97)); }), "the extents need"));
}

TEST_CASE("tensor: slices") {
    std::vector<float> memory(120);
    const auto whole = tilewise::bhsd(memory.data(), 2, 3, 4, 5);
    const auto part = whole.slice(axis::heads, 1, 2).slice(axis::tokens, 3, 1).slice(axis::head_dim, 2, 3);
    CHECK(part.extents == std::array<count, 4>{2, 2, 1, 3});
    CHECK(element(part, 1, 1, 0, 2) == element(whole, 1, 2, 3, 4));
    CHECK(whole.slice(axis::batch, 2, 0).batch() == 0);
    CHECK(whole.slice(axis::batch, 0, 2).extents == whole.extents);
    CHECK(tilewise::tensor{}.slice(axis::tokens, 0, 0).data == nullptr);
}

TEST_CASE("tensor: a slice that is not inside is refused") {
    std::vector<float> memory(120);
    const auto whole = tilewise::bhsd(memory.data(), 2, 3, 4, 5);
    constexpr count largest = std::numeric_limits<count>::max();
    for (const auto& [first, size] : std::array<std::array<count, 2>, 7>{
             {{-1, 1}, {0, -1}, {4, 1}, {0, 5}, {3, 2}, {largest, 1}, {1, largest}}}) {
        const std::string message =
            refusal_of([&, f = first, s = size] { static_cast<void>(whole.slice(axis::tokens, f, s)); });
        INFO(message);
        CHECK(has(message, "first " + std::to_string(first)));
        CHECK(has(message, "count " + std::to_string(size)));
        CHECK(has(message, "has 4"));
    }
}

TEST_CASE("tensor: a slice of a view that cannot be is refused, or stays where it is without elements") {
    std::vector<float> memory(120);
    tilewise::tensor wild = tilewise::bhsd(memory.data(), 2, 3, 4, 5);
    constexpr count largest = std::numeric_limits<count>::max();
    for (const count stride : {largest, largest / 2, largest / 8, -largest, -largest - 1}) {
        wild.strides[2] = stride;
        const std::string message = refusal_of([&] { static_cast<void>(wild.slice(axis::tokens, 3, 1)); });
        INFO(message);
        CHECK(has(message, "first 3"));
        CHECK(has(message, "stride of " + std::to_string(stride)));
        CHECK(wild.slice(axis::tokens, 0, 1).data == memory.data());
        CHECK(wild.slice(axis::tokens, 3, 0).data == memory.data());
        tilewise::tensor empty = wild;
        empty.extents[3] = 0;
        CHECK(empty.slice(axis::tokens, 3, 1).data == memory.data());
    }
}

TEST_CASE("tensor: a slice that would begin beyond the last address, or before the first, is refused") {
    const auto address = [](std::uintptr_t at) { return reinterpret_cast<float*>(at); };
    float element = 0.0F;
    const std::array<count, 4> strides = {60, 20, 5, 1};
    const auto begins = [&](float* data, float* scales, count stride) {
        tilewise::tensor wild(data, scales == nullptr ? element_type::f32 : element_type::i8, {2, 3, 4, 5},
                              strides);
        (scales == nullptr ? wild.strides : wild.scale_strides)[2] = stride;
        wild.scales = scales;
        return refusal_of([&] { static_cast<void>(wild.slice(axis::tokens, 3, 1)); });
    };
    const std::uintptr_t last = ~std::uintptr_t{3};
    CHECK(has(begins(address(last), nullptr, 5), std::to_string(last)));
    CHECK(has(begins(&element, address(last), 1), std::to_string(last)));
    CHECK(has(begins(address(8), nullptr, -1), "address 8"));
    CHECK(has(begins(&element, address(8), -1), "address 8"));
    CHECK(has(begins(address(12), nullptr, -1), "address 12"));
    CHECK(begins(address(16), nullptr, -1) == "");
    CHECK(begins(address(last - 12), nullptr, 1) == "");
}

TEST_CASE("tensor: a span must hold the elements") {
    std::vector<float> memory(120);
    const std::span<float> span(memory);
    CHECK(tilewise::bhsd(span, 2, 3, 4, 5).data == memory.data());
    CHECK(tilewise::bshd(std::span<const float>(memory), 2, 4, 3, 5).data == memory.data());
    CHECK(tilewise::bhsd(span, 2, 3, 4, 0).head_dim() == 0);
    constexpr count large = count{1} << 32U;
    CHECK(tilewise::bhsd(span, 0, large, large, large).batch() == 0);

    CHECK(has(refusal_of([&] { static_cast<void>(tilewise::bhsd(span, 2, 3, 4, 6)); }), "120"));
    CHECK(has(refusal_of([&] { static_cast<void>(tilewise::bshd(span, 121, 1, 1, 1)); }), "120"));
    CHECK(has(refusal_of([&] { static_cast<void>(tilewise::bshd(span, 2, -4, 3, 5)); }), "-4"));
    // 2^64 elements: the product must not wrap around to 0.
    CHECK(has(refusal_of([&] { static_cast<void>(tilewise::bhsd(span, large, large, 1, 1)); }), "120"));
}

// Wrong element types: refused by name, with what was given and what is allowed; and checks of memory count
// elements in their size.

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "refusals.hpp"
#include "support.hpp"

using namespace tilewise_tests;

namespace {

using tilewise::element_type;
using tilewise::float16;

/// A valid call in f16: 2 heads, 3 queries, 4 keys, head_dim 8.
struct call {
    std::vector<float16> memory = std::vector<float16>(400, float16(0.5F));
    std::vector<float> floats = std::vector<float>(100, 0.5F);
    tilewise::const_tensor q = tilewise::bhsd(memory.data(), 1, 2, 3, 8);
    tilewise::const_tensor k = tilewise::bhsd(memory.data() + 48, 1, 2, 4, 8);
    tilewise::const_tensor v = tilewise::bhsd(memory.data() + 112, 1, 2, 4, 8);
    tilewise::tensor out = tilewise::bhsd(memory.data() + 176, 1, 2, 3, 8);
    tilewise::options how = {.lse = tilewise::row_values(floats.data(), 1, 2, 3)};
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using change = std::function<void(call&)>;

/// What the call says to the change; empty if it accepts it.
std::string answer(const change& make) {
    std::string messages[2];
    call c;
    make(c);
    for (const bool naively : {false, true}) {
        messages[naively ? 1 : 0] = refusal_of([&] {
            (naively ? tilewise::reference::attention : tilewise::attention)(c.q, c.k, c.v, c.out, c.how);
        });
    }
    CHECK(messages[0] == messages[1]);
    return messages[0];
}

}  // namespace

TEST_CASE("type arguments: what each tensor may be stored in") {
    CHECK(answer([](call&) {}) == "");
    const std::string floats = ": element type i32 given, it must be f32, f16 or bf16";
    CHECK(answer([](call& c) { c.q.type = element_type::i32; }) ==
          "tilewise: q: element type i32 given, it must be f32, f16, bf16 or f64");
    CHECK(has(answer([](call& c) { c.k.type = element_type::i32; }),
              "k: element type i32 given, it must be f32"));
    CHECK(has(answer([](call& c) { c.v.type = element_type::i32; }),
              "v: element type i32 given, it must be f32"));
    CHECK(has(answer([](call& c) { c.q.type = element_type::q8_0; }), "q: element type q8_0 given"));
    CHECK(has(answer([](call& c) { c.out.type = element_type::q8_0; }), "out: element type q8_0 given"));
    CHECK(answer([](call& c) { c.out.type = element_type::i32; }) == "tilewise: out" + floats);
    CHECK(answer([](call& c) { c.how.lse.type = element_type::f16; }) ==
          "tilewise: lse: element type f16 given, it must be f32");
    const auto bias = [](element_type type) {
        return [=](call& c) { c.how.bias = {c.floats.data() + 10, type, {1, 1, 1, 4}, {0, 0, 0, 1}}; };
    };
    CHECK(answer(bias(element_type::bf16)) == "");
    CHECK(answer(bias(element_type::i32)) == "tilewise: bias" + floats);
    CHECK(answer([](call& c) {
              c.how.mask = {c.floats.data() + 10, element_type::bf16, {1, 1, 1, 4}, {0, 0, 0, 1}};
          }) == "tilewise: mask: element type bf16 given, it must be boolean or bit");
}

#ifndef TILEWISE_TESTS_HAVE_F64
TEST_CASE("type arguments: a library without f64 says so") {
    CHECK(answer([](call& c) {
              c.q = c.k = c.v = c.out = {c.memory.data(), element_type::f64, {}, {}};
          }) == "tilewise: q: element type f64 given, this library was built without it (TILEWISE_F64)");
}
#endif

TEST_CASE("type arguments: alignment and overlap go by the size of an element") {
    const auto shift = [](std::ptrdiff_t bytes) {
        return [=](call& c) { c.v.data = static_cast<const std::byte*>(c.v.data) + bytes; };
    };
    CHECK(answer(shift(-2)) == "");
    CHECK(has(answer(shift(1)), "multiple of 2"));
    CHECK(has(answer([](call& c) { c.out.data = c.memory.data() + 175; }), "overlaps that of v"));
    CHECK(answer([](call& c) { c.out.type = element_type::bf16; }) == "");
}

TEST_CASE("type arguments: rows of blocks are whole") {
    // 4 blocks of q8_0 for k: 2 heads, 1 token, head_dim 64.
    const auto with_k = [](const change& then) {
        return [=](call& c) {
            c.q = tilewise::bhsd(c.floats.data() + 10, 1, 1, 1, 64);
            c.k = {c.memory.data(), element_type::q8_0, {1, 1, 2, 64}, {128, 128, 64, 1}};
            c.v = tilewise::bhsd(c.memory.data() + 68, 1, 1, 2, 8);
            c.out = tilewise::bhsd(c.memory.data() + 84, 1, 1, 1, 8);
            c.how = {};
            then(c);
        };
    };
    CHECK(answer(with_k([](call&) {})) == "");
    CHECK(answer(with_k([](call& c) { c.out.data = c.memory.data() + 60; })) ==
          "tilewise: out: its memory overlaps that of k, it must be apart from it");
    CHECK(answer(with_k([](call& c) { c.q.extents[3] = c.k.extents[3] = 48; })) ==
          "tilewise: k: head_dim is 48, it must be a multiple of 32, a block of q8_0");
    CHECK(answer(with_k([](call& c) { c.k.strides[2] = 40; })) ==
          "tilewise: k: tokens has stride 40, it must be a multiple of 32, a block of q8_0");
    CHECK(answer(with_k([](call& c) { c.k.strides[3] = 2; })) ==
          "tilewise: k: head_dim has stride 2, it must be 1 for q8_0");
    CHECK(answer(with_k([](call& c) { c.k.strides[1] = 7; })) == "");  // of one head
    CHECK(has(answer(with_k([](call& c) { c.k.data = static_cast<const std::byte*>(c.k.data) + 1; })),
              "k: data at address"));
}

TEST_CASE("type arguments: scales") {
    const auto with_v = [](const change& then) {
        return [=](call& c) {
            c.v = {c.memory.data() + 112, element_type::i8, {1, 2, 4, 8}, {64, 32, 8, 1}};
            c.v = tilewise::with_scales(c.v, c.floats.data() + 10, tilewise::scales_per::token);
            then(c);
        };
    };
    CHECK(answer(with_v([](call&) {})) == "");
    CHECK(answer(with_v([](call& c) { c.v.scales = nullptr; })) ==
          "tilewise: v: no scales given, i8 needs them");
    CHECK(answer([](call& c) { c.k.scales = c.floats.data(); }) ==
          "tilewise: k: scales given, there are none with f16");
    CHECK(answer([](call& c) { c.q.scales = c.floats.data(); }) ==
          "tilewise: q: scales given, there are none with f16");
    CHECK(has(answer(with_v([](call& c) { c.v.scale_strides[2] = std::int64_t{1} << 62U; })),
              "v.scales: tokens 4 with stride"));
    CHECK(has(answer(with_v([](call& c) {
                  c.v.scales =
                      reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(c.v.scales) + 1);
              })),
              "v.scales: data at address"));
    CHECK(answer(with_v([](call& c) { c.v.scales = c.floats.data() + 5; })) ==
          "tilewise: lse: its memory overlaps that of v.scales, it must be apart from it");
    CHECK(answer(with_v([](call& c) { c.v.scales = reinterpret_cast<const float*>(c.out.data); })) ==
          "tilewise: out: its memory overlaps that of v.scales, it must be apart from it");
    // Nothing to scale.
    CHECK(answer([](call& c) {
              c.v = {nullptr, element_type::i8, {1, 2, 0, 8}, {0, 0, 8, 1}};
              c.k.extents[2] = 0;
          }) == "");
}

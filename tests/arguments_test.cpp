// Bad input: every wrong argument is refused by all entry points alike, with a std::invalid_argument that
// names it, says what was given and what is allowed, and before anything is written.

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "refusals.hpp"
#include "support.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;
constexpr count huge = count{1} << 62U;

/// A valid call: batch 2, heads 4 over 2, queries 3, keys 5, dims 6 and 7.
struct call {
    std::vector<float> memory = std::vector<float>(2000, 0.5F);
    tilewise::const_tensor q = tilewise::bhsd(memory.data(), 2, 4, 3, 6);
    tilewise::const_tensor k = tilewise::bhsd(memory.data() + 200, 2, 2, 5, 6);
    tilewise::const_tensor v = tilewise::bhsd(memory.data() + 400, 2, 2, 5, 7);
    tilewise::tensor out = tilewise::bhsd(memory.data() + 800, 2, 4, 3, 7);
    tilewise::options how = {.lse = tilewise::row_values(memory.data() + 1200, 2, 4, 3)};
};

using entry_point = std::function<void(const call&)>;

struct named_entry_point {
    std::string name;
    entry_point run;
};

// The plan comes first: what it accepts by mistake might crash the others.
const std::vector<named_entry_point> entry_points = {
    {"plan_attention",
     [](const call& c) { static_cast<void>(tilewise::plan_attention(c.q, c.k, c.v, c.out, c.how)); }},
    {"attention", [](const call& c) { tilewise::attention(c.q, c.k, c.v, c.out, c.how); }},
    {"reference::attention",
     [](const call& c) { tilewise::reference::attention(c.q, c.k, c.v, c.out, c.how); }}};

/// Makes one argument wrong.
using mistake = std::function<void(call&)>;

/// Checks that a call with the mistake is refused, with a message that has all of the `parts`.
void refuses(const std::string& what, const mistake& make, const std::vector<std::string>& parts) {
    for (const named_entry_point& entry : entry_points) {
        INFO(what, ", by ", entry.name);
        call wrong;
        make(wrong);
        const std::vector<float> before = wrong.memory;
        check_refusal([&] { entry.run(wrong); }, parts);
        CHECK(wrong.memory == before);
    }
}

/// Checks that a call is accepted by all entry points.
void accepts(const std::string& what, const mistake& make) {
    for (const named_entry_point& entry : entry_points) {
        INFO(what, ", by ", entry.name);
        call unusual;
        make(unusual);
        CHECK_NOTHROW(entry.run(unusual));
    }
}

template <class View>
void set_extent(View& view, std::size_t axis, count extent) {
    view.extents[axis] = extent;
}

}  // namespace

TEST_CASE("arguments: the call that the others are made from is accepted") {
    accepts("nothing wrong", [](call&) {});
}

TEST_CASE("arguments: null data") {
    refuses("q", [](call& c) { c.q.data = nullptr; }, {"q:", "null"});
    refuses("k", [](call& c) { c.k.data = nullptr; }, {"k:", "null"});
    refuses("v", [](call& c) { c.v.data = nullptr; }, {"v:", "null"});
    refuses("out", [](call& c) { c.out.data = nullptr; }, {"out:", "null"});
    accepts("lse null: not wanted", [](call& c) { c.how.lse = {}; });
}

TEST_CASE("arguments: misaligned data") {
    const auto shift = [](auto& view) {
        view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<std::uintptr_t>(view.data) + 2);
    };
    refuses("q", [&](call& c) { shift(c.q); }, {"q:", "address", "multiple of 4"});
    refuses("k", [&](call& c) { shift(c.k); }, {"k:", "address", "multiple of 4"});
    refuses("v", [&](call& c) { shift(c.v); }, {"v:", "address", "multiple of 4"});
    refuses("out", [&](call& c) { shift(c.out); }, {"out:", "address", "multiple of 4"});
    refuses("lse", [&](call& c) { shift(c.how.lse); }, {"lse:", "address", "multiple of 4"});
}

TEST_CASE("arguments: unknown element types") {
    const auto unknown = static_cast<tilewise::element_type>(77);
    refuses("q", [=](call& c) { c.q.type = unknown; }, {"q:", "77", "f32"});
    refuses("k", [=](call& c) { c.k.type = unknown; }, {"k:", "77", "f32"});
    refuses("v", [=](call& c) { c.v.type = unknown; }, {"v:", "77", "f32"});
    refuses("out", [=](call& c) { c.out.type = unknown; }, {"out:", "77", "f32"});
    refuses("lse", [=](call& c) { c.how.lse.type = unknown; }, {"lse:", "77", "f32"});
}

TEST_CASE("arguments: negative extents") {
    constexpr std::array names = {"batch", "heads", "tokens", "head_dim"};
    for (std::size_t axis = 0; axis < 4; ++axis) {
        const std::string name = names[axis];
        refuses("q", [=](call& c) { set_extent(c.q, axis, -3); }, {"q:", name, "-3", "at least 0"});
        refuses("k", [=](call& c) { set_extent(c.k, axis, -1); }, {"k:", name, "-1", "at least 0"});
        refuses("v", [=](call& c) { set_extent(c.v, axis, -huge); },
                {"v:", name, std::to_string(-huge), "at least 0"});
        refuses("out", [=](call& c) { set_extent(c.out, axis, -2); }, {"out:", name, "-2", "at least 0"});
        refuses("lse", [=](call& c) { set_extent(c.how.lse, axis, -2); }, {"lse:", name, "-2", "at least 0"});
    }
}

TEST_CASE("arguments: extents that do not fit together") {
    refuses("k batch", [](call& c) { set_extent(c.k, 0, 1); }, {"k:", "batch", "1", "2"});
    refuses("k head_dim", [](call& c) { set_extent(c.k, 3, 5); }, {"k:", "head_dim", "5", "6"});
    refuses("v batch", [](call& c) { set_extent(c.v, 0, 1); }, {"v:", "batch", "1", "2"});
    refuses("v heads", [](call& c) { set_extent(c.v, 1, 1); }, {"v:", "heads", "1", "2"});
    refuses("v tokens", [](call& c) { set_extent(c.v, 2, 4); }, {"v:", "tokens", "4", "5"});
    refuses("out batch", [](call& c) { set_extent(c.out, 0, 1); }, {"out:", "batch", "1", "2"});
    refuses("out heads", [](call& c) { set_extent(c.out, 1, 2); }, {"out:", "heads", "2", "4"});
    refuses("out tokens", [](call& c) { set_extent(c.out, 2, 2); }, {"out:", "tokens", "2", "3"});
    refuses("out head_dim", [](call& c) { set_extent(c.out, 3, 6); }, {"out:", "head_dim", "6", "7"});
    refuses("lse batch", [](call& c) { set_extent(c.how.lse, 0, 1); }, {"lse:", "batch", "1", "2"});
    refuses("lse heads", [](call& c) { set_extent(c.how.lse, 1, 3); }, {"lse:", "heads", "3", "4"});
    refuses("lse tokens", [](call& c) { set_extent(c.how.lse, 2, 4); }, {"lse:", "tokens", "4", "3"});
    refuses("lse head_dim", [](call& c) { set_extent(c.how.lse, 3, 7); }, {"lse:", "head_dim", "7", "1"});
}

TEST_CASE("arguments: heads that are no multiple of the key heads") {
    const auto set_kv_heads = [](call& c, count heads) {
        set_extent(c.k, 1, heads);
        set_extent(c.v, 1, heads);
    };
    refuses("3 of 4", [=](call& c) { set_kv_heads(c, 3); }, {"k:", "3 heads", "q has 4", "multiple"});
    refuses("8 of 4", [=](call& c) { set_kv_heads(c, 8); }, {"k:", "8 heads", "q has 4", "multiple"});
    refuses("0 of 4", [=](call& c) { set_kv_heads(c, 0); }, {"k:", "0 heads", "q has 4", "multiple"});
    accepts("1 of 4", [=](call& c) { set_kv_heads(c, 1); });
}

TEST_CASE("arguments: products beyond 64 bits") {
    // Each offset, in elements or in bytes, and the number of rows must fit.
    refuses("q strides", [](call& c) { c.q.strides[1] = huge; },
            {"q:", "heads", std::to_string(huge), "63 bits"});
    refuses("k strides", [](call& c) { c.k.strides[2] = -huge; },
            {"k:", "tokens", std::to_string(-huge), "63 bits"});
    refuses("v bytes", [](call& c) { c.v.strides[0] = huge / 2; }, {"v:", "23058430092136940", "63 bits"});
    refuses("out sum", [](call& c) { c.out.strides = {huge, huge / 2, huge / 8, 1}; }, {"out:", "63 bits"});
    refuses("lse strides", [](call& c) { c.how.lse.strides[2] = huge; }, {"lse:", "63 bits"});
    refuses(
        "rows",
        [](call& c) {
            const std::array<count, 4> many = {count{1} << 21U, count{1} << 21U, count{1} << 22U, 6};
            c.q = {c.memory.data(), tilewise::element_type::f32, many, {0, 0, 0, 1}};
            c.k = {c.memory.data(), tilewise::element_type::f32, {many[0], many[1], 1, 6}, {0, 0, 0, 1}};
            c.v = {c.memory.data(), tilewise::element_type::f32, {many[0], many[1], 1, 0}, {0, 0, 0, 1}};
            c.out = {
                c.memory.data(), tilewise::element_type::f32, {many[0], many[1], many[2], 0}, {0, 0, 0, 1}};
            c.how.lse = {};
        },
        {"q:", "2097152", "4194304", "63 bits"});
}

TEST_CASE("arguments: a head_dim for which scratch memory cannot be counted in 64 bits") {
    // Broadcast along head_dim, such a tensor is one element.
    for (const unsigned shift : {60U, 61U, 62U}) {
        const count dim = count{1} << shift;
        refuses("head_dim",
                [=](call& c) {
                    c.q = {c.memory.data(), tilewise::element_type::f32, {1, 1, 1, dim}, {0, 0, 0, 0}};
                    c.k = c.q;
                    c.v = tilewise::bhsd(c.memory.data() + 400, 1, 1, 1, 7);
                    c.out = tilewise::bhsd(c.memory.data() + 800, 1, 1, 1, 7);
                    c.how.lse = {};
                },
                {"q:", "head_dim", std::to_string(dim)});
    }
}

TEST_CASE("arguments: scale") {
    refuses("NaN", [](call& c) { c.how.scale = quiet_nan; }, {"scale:", "nan", "finite"});
    refuses("+inf", [](call& c) { c.how.scale = infinity; }, {"scale:", "inf", "finite"});
    refuses("-inf", [](call& c) { c.how.scale = -infinity; }, {"scale:", "-inf", "finite"});
    for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::max(), 1e-45F}) {
        accepts("a finite scale", [=](call& c) { c.how.scale = scale; });
    }
}

TEST_CASE("arguments: unknown enumerators") {
    refuses("causal", [](call& c) { c.how.causal = static_cast<tilewise::causal>(9); },
            {"causal:", "9", "none", "bottom_right", "top_left"});
    refuses("arithmetic", [](call& c) { c.how.arithmetic = static_cast<tilewise::arithmetic>(9); },
            {"arithmetic:", "9", "exact", "fastest"});
}

TEST_CASE("arguments: threads and scratch") {
    refuses("-1", [](call& c) { c.how.threads = -1; }, {"threads:", "-1", "at least 0"});
    refuses("the smallest", [](call& c) { c.how.threads = std::numeric_limits<int>::min(); },
            {"threads:", "-2147483648", "at least 0"});
    accepts("the largest", [](call& c) { c.how.threads = std::numeric_limits<int>::max(); });
    accepts("any scratch budget",
            [](call& c) { c.how.scratch_budget = std::numeric_limits<std::size_t>::max(); });
    accepts("any scratch budget", [](call& c) { c.how.scratch_budget = 1; });
}

TEST_CASE("arguments: out and lse that overlap an input or each other") {
    const auto at = [](call& c, count place) { return c.memory.data() + place; };
    refuses("out on q", [=](call& c) { c.out.data = at(c, 0); }, {"out:", "overlaps", " q"});
    refuses("out on the end of q", [=](call& c) { c.out.data = at(c, 143); }, {"out:", "overlaps", " q"});
    refuses("out on k", [=](call& c) { c.out.data = at(c, 319); }, {"out:", "overlaps", " k"});
    refuses("out's end on v", [=](call& c) { c.out.data = at(c, 539); }, {"out:", "overlaps", " v"});
    refuses("lse on q", [=](call& c) { c.how.lse.data = at(c, 5); }, {"lse:", "overlaps", " q"});
    refuses("lse on k", [=](call& c) { c.how.lse.data = at(c, 205); }, {"lse:", "overlaps", " k"});
    refuses("lse on v", [=](call& c) { c.how.lse.data = at(c, 405); }, {"lse:", "overlaps", " v"});
    refuses("lse on out", [=](call& c) { c.how.lse.data = at(c, 967); }, {"lse:", "overlaps", " out"});
    accepts("out right behind v", [=](call& c) { c.out.data = at(c, 540); });
    accepts("lse right behind out", [=](call& c) { c.how.lse.data = at(c, 968); });
    accepts("q, k and v may overlap", [](call& c) {
        c.k = c.q.slice(tilewise::axis::heads, 0, 2);
        c.v = c.k;
        c.out.extents[3] = 6;
    });
}

TEST_CASE("arguments: out and lse that overlap themselves") {
    constexpr std::array names = {"batch", "heads", "tokens", "head_dim"};
    for (std::size_t axis = 0; axis < 4; ++axis) {
        refuses("out", [=](call& c) { c.out.strides[axis] = 0; },
                {"out:", names[axis], "stride 0", "at least"});
    }
    for (std::size_t axis = 0; axis < 3; ++axis) {
        refuses("lse", [=](call& c) { c.how.lse.strides[axis] = 0; },
                {"lse:", names[axis], "stride 0", "at least"});
    }
    refuses("rows that run into the next", [](call& c) { c.out.strides[2] = 6; },
            {"out:", "tokens", "stride 6", "7"});
    accepts("a stride of 0 on an axis with one element", [](call& c) {
        c.q.extents[0] = c.k.extents[0] = c.v.extents[0] = c.out.extents[0] = c.how.lse.extents[0] = 1;
        c.out.strides[0] = c.how.lse.strides[0] = c.how.lse.strides[3] = 0;
    });
    accepts("inputs may", [](call& c) { c.q.strides = c.k.strides = c.v.strides = {0, 0, 0, 0}; });
}

TEST_CASE("arguments: sizes of zero are no errors, and need no memory") {
    const tilewise::tensor none;
    for (std::size_t axis = 0; axis < 4; ++axis) {
        accepts("an empty extent of all", [=](call& c) {
            for (tilewise::const_tensor* view : {&c.q, &c.k, &c.v}) { view->extents[axis] = 0; }
            if (axis != 3) { c.how.lse.extents[axis] = 0; }
            c.out.extents[axis] = 0;
        });
    }
    accepts("no query, and null", [=](call& c) {
        c.q.extents[2] = c.out.extents[2] = c.how.lse.extents[2] = 0;
        c.q.data = c.out.data = c.how.lse.data = nullptr;
    });
    accepts("no key, and null", [=](call& c) {
        c.k.extents[2] = c.v.extents[2] = 0;
        c.k.data = c.v.data = nullptr;
    });
    accepts("nothing at all", [=](call& c) {
        c.q = c.k = c.v = none;
        c.out = c.how.lse = none;
    });
}

TEST_CASE("arguments: scores that the naive formulation cannot hold") {
    // Also where their number wraps around to 0 in 64 bits.
    for (const unsigned shift : {31U, 32U, 33U}) {
        call large;
        const count length = count{1} << shift;
        large.q = large.k =
            large.v = {large.memory.data(), tilewise::element_type::f32, {1, 1, length, 1}, {0, 0, 0, 0}};
        void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 60U);  // never written
        large.out = {nowhere, tilewise::element_type::f32, {1, 1, length, 1}, {0, 0, 1, 1}};
        large.how = {};
        CHECK_THROWS_AS(tilewise::reference::attention(large.q, large.k, large.v, large.out, large.how),
                        std::bad_alloc);
    }
}

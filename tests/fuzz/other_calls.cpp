#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <tilewise/tilewise.hpp>
#include <vector>

#include "entry_points.hpp"
#include "hostile.hpp"
#include "sequences.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::const_tensor;
using tilewise::element_type;

constexpr std::array float_types = {element_type::f32, element_type::f16, element_type::bf16};

/// Runs a call, and checks what it wrote.
void check_writes(const std::vector<described>& written, arena& memory, const std::function<void()>& call) {
    const std::vector<std::byte> before = memory.bytes();
    const bool was_refused = !refusal_of(call).empty();
    std::vector<bool> may_be_written(arena::size);
    for (const described& one : written) {
        if (was_refused) { continue; }
        if (!one.count_bytes(memory, may_be_written)) { report("elements of a result share a place"); }
    }
    for (std::size_t n = 0; n < arena::size; ++n) {
        if (!may_be_written[n] && memory.bytes()[n] != before[n]) { report("written beside the results"); }
    }
}

/// At times, one thing about one of some views is changed.
template <std::size_t n>
void harm_one_of(const std::array<const_tensor*, n>& views, byte_source& bytes, arena& memory) {
    for (count left = bytes.between(0, 2); left > 0; --left) { harm(*bytes.pick(views), bytes, memory); }
}

tilewise::tensor writable(const const_tensor& view) {
    return {const_cast<void*>(view.data), view.type, view.extents, view.strides};
}

void check_merge(byte_source& bytes, arena& memory) {
    const std::array<count, 4> rows = {bytes.between(0, 2), bytes.between(0, 2), bytes.between(0, 5),
                                       bytes.between(0, 5)};
    const std::array<count, 4> one = {rows[0], rows[1], rows[2], 1};
    std::array<const_tensor, 8> views;
    std::array<const_tensor*, 8> all{};
    for (std::size_t n = 0; n < views.size(); ++n) {
        place(views[n], memory, n % 2 == 0 ? bytes.pick(float_types) : element_type::f32,
              n % 2 == 0 ? rows : one);
        all[n] = &views[n];
    }
    if (bytes.one_in(4)) { views[1].data = nullptr; }
    harm_one_of(all, bytes, memory);
    if (bytes.one_in(4)) { views[2] = views[0]; }  // out replaces a part
    if (bytes.one_in(4)) { views[3] = views[1]; }
    std::vector<tilewise::partial_result> parts;
    for (std::size_t n = 2; n < views.size(); n += 2) { parts.push_back({views[n], views[n + 1]}); }
    parts.resize(static_cast<std::size_t>(bytes.between(0, 3)));
    std::vector<described> written = {describe(views[0])};
    if (views[1].data != nullptr) { written.push_back(describe(views[1])); }
    std::vector<described> used = written;
    for (std::size_t n = 2; n < 2 + 2 * parts.size(); ++n) { used.push_back(describe(views[n])); }
    if (!can_be_tried(used, memory)) { return; }
    check_writes(written, memory, [&] { tilewise::merge(parts, writable(views[0]), writable(views[1])); });
}

tilewise::rotary_options pick_rotary(byte_source& bytes, std::vector<count>& positions,
                                     const const_tensor& x) {
    constexpr std::array thetas = {10000.0,
                                   1.0,
                                   0x1p64,
                                   0x1p65,
                                   0.5,
                                   -1.0,
                                   std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
    tilewise::rotary_options how;
    how.pairs = static_cast<tilewise::rotary_pairs>(bytes.between(0, 9) % 3);
    if (bytes.one_in(3)) { how.dims = bytes.one_in(4) ? hostile_number(bytes) : 2 * bytes.between(0, 3); }
    if (bytes.one_in(3)) { how.theta = bytes.pick(thetas); }
    if (bytes.one_in(3)) { how.first_position = hostile_number(bytes); }
    if (bytes.one_in(3)) {
        const count most = bytes.one_in(2) ? x.tokens() : x.batch() * x.tokens();
        positions.resize(static_cast<std::size_t>(bytes.one_in(8) ? bytes.between(0, 12) : most));
        for (count& position : positions) {
            position = bytes.one_in(8) ? hostile_number(bytes) : bytes.between(0, 7);
        }
        how.positions = positions;
    }
    return how;
}

void check_rotary(byte_source& bytes, arena& memory) {
    std::array<const_tensor, 3> views;
    const count dim = 2 * bytes.between(0, 4);
    place(views[0], memory, bytes.pick(float_types),
          {bytes.between(0, 2), bytes.between(0, 2), bytes.between(0, 4), dim});
    const count rows = bytes.between(0, 8);
    for (std::size_t n = 1; n < 3; ++n) { place(views[n], memory, element_type::f32, {1, 1, rows, dim / 2}); }
    std::vector<count> positions;
    const tilewise::rotary_options how = pick_rotary(bytes, positions, views[0]);
    harm_one_of(std::array{&views[0], &views[1], &views[2]}, bytes, memory);
    const described x = describe(views[0]);
    const std::vector<described> tables = {describe(views[1]), describe(views[2])};
    switch (bytes.between(0, 2)) {
        case 0:
            if (!can_be_tried({&x, 1}, memory)) { return; }
            return check_writes({x}, memory, [&] { tilewise::rotary_embedding(writable(views[0]), how); });
        case 1:
            if (!can_be_tried({&x, 1}, memory) || !can_be_tried(tables, memory)) { return; }
            return check_writes({x}, memory, [&] {
                tilewise::rotary_embedding(writable(views[0]), views[1], views[2], how);
            });
        default:
            if (!can_be_tried(tables, memory)) { return; }
            check_writes(tables, memory,
                         [&] { tilewise::rotary_tables(writable(views[1]), writable(views[2]), how); });
    }
}

/// Whether so many elements are in the memory that check_quantize has, or more than any memory has.
bool can_be_promised(count elements) { return elements <= 64 || elements > count{1} << 61; }

/// From C: sizes of any kind, and null pointers.
void check_quantize(byte_source& bytes, arena& memory) {
    const count size = bytes.one_in(2) ? hostile_number(bytes) : 32 * bytes.between(0, 2);
    const count dim = bytes.one_in(2) ? hostile_number(bytes) : bytes.between(0, 8);
    constexpr std::size_t room = 64 * 64;
    const auto take = [&](std::size_t size_of) { return bytes.one_in(8) ? nullptr : memory.take(size_of); };
    auto* const values = reinterpret_cast<float*>(take(room * 4));
    std::byte* const numbers = take(room);
    auto* const scales = reinterpret_cast<float*>(take(256 * 4));
    std::vector<described> results;
    if (numbers != nullptr) { results.push_back({numbers, {room}, {1}, 1, 1}); }
    if (scales != nullptr) { results.push_back({scales, {64}, {1}, 1, 4}); }
    auto* const unsigned_numbers = reinterpret_cast<std::uint8_t*>(numbers);
    auto* const signed_numbers = reinterpret_cast<std::int8_t*>(numbers);
    using quantize = std::function<tilewise_status()>;
    const std::array<quantize, 4> by_count = {
        [=] { return tilewise_quantize_q8_0(values, size, numbers); },
        [=] { return tilewise_quantize_q4_0(values, size, numbers); },
        [=] { return tilewise_quantize_e4m3(values, size, unsigned_numbers, scales); },
        [=] { return tilewise_quantize_e5m2(values, size, unsigned_numbers, scales); }};
    const std::array<quantize, 2> by_rows = {
        [=] { return tilewise_quantize_i8_per_token(values, size, dim, signed_numbers, scales); },
        [=] { return tilewise_quantize_i8_per_channel(values, size, dim, signed_numbers, scales); }};
    if (!can_be_promised(size) || !can_be_promised(dim)) { return; }
    const quantize& call = bytes.one_in(2) ? bytes.pick(by_rows) : bytes.pick(by_count);
    check_writes(results, memory, [&] {
        const std::string refusal = refusal_of(call());
        if (!refusal.empty()) { throw std::invalid_argument(refusal); }
    });
}

/// Parts of any views, in C++ and in C: what is refused throws, and what is not has its elements in the view.
void check_slice(byte_source& bytes, arena& memory) {
    const_tensor view;
    const element_type type =
        bytes.pick(std::array{element_type::f32, element_type::q4_0, element_type::i8, element_type::f64});
    place(view, memory, type, {bytes.between(1, 2), bytes.between(1, 2), bytes.between(0, 3), 32});
    const bool is_sound = !bytes.one_in(2);
    if (!is_sound) { harm(view, bytes, memory); }
    const auto along = static_cast<std::size_t>(bytes.between(0, 3));
    const count first = bytes.one_in(2) ? hostile_number(bytes) : bytes.between(0, 2);
    const count extent = bytes.one_in(2) ? hostile_number(bytes) : bytes.between(0, 2);
    if (!is_sound && view.type > element_type::f64) { return; }
    const_tensor part;
    const std::string refusal =
        refusal_of([&] { part = view.slice(static_cast<tilewise::axis>(along), first, extent); });
    tilewise_tensor from = in_c(view);
    tilewise_tensor part_in_c{};
    const std::string refusal_in_c =
        refusal_of(tilewise_slice(&from, static_cast<std::int32_t>(along), first, extent, &part_in_c));
    if (refusal_in_c != refusal) { report("slices differ: '" + refusal + "', '" + refusal_in_c + "'"); }
    if (refusal.empty() && is_sound && !describe(part).is_within(memory)) { report("a slice is outside"); }
}

}  // namespace

void check_other_calls(byte_source& bytes) {
    static arena memory;
    memory.fill(bytes.byte());
    switch (bytes.between(0, 3)) {
        case 0:
            return check_merge(bytes, memory);
        case 1:
            return check_rotary(bytes, memory);
        case 2:
            return check_slice(bytes, memory);
        default:
            check_quantize(bytes, memory);
    }
}

}  // namespace tilewise_tests

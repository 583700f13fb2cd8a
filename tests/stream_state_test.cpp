// Saving and restoring an attention_stream: at every cut, with the same bytes everywhere, and what is
// refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tilewise/stream.hpp>
#include <vector>

#include "cases.hpp"
#include "mask_cases.hpp"
#include "refusals.hpp"
#include "streams.hpp"
#include "support.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::attention_stream;
using bytes = std::vector<std::byte>;

constexpr attention_case sizes{.batch = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .queries = 3,
                               .keys = 300,
                               .key_dim = 5,
                               .value_dim = 6,
                               .seed = 51};
const tilewise::options how{.causal = tilewise::causal::bottom_right, .key_position = 70};

constexpr std::size_t first_size_at = 24;  // batch; see stream.hpp
constexpr std::size_t keys_at = 80;
constexpr std::size_t checksum_at = 104;
constexpr std::size_t header_bytes = 112;

std::uint64_t number_at(const bytes& state, std::size_t place) {
    std::uint64_t number = 0;
    for (std::size_t n = 8; n-- > 0;) {
        number = number << 8U | static_cast<std::uint64_t>(state[place + n]);
    }
    return number;
}

void set_number(bytes& state, std::size_t place, std::uint64_t number) {
    for (std::size_t n = 0; n < 8; ++n) {
        state[place + n] = static_cast<std::byte>(number >> 8U * n & 0xffU);
    }
}

/// FNV-1a of all but itself, so that what was changed on purpose is found elsewhere.
void correct_checksum(bytes& state) {
    std::uint64_t sum = 0xcbf29ce484222325U;
    for (std::size_t n = 0; n < state.size(); ++n) {
        if (n >= checksum_at && n < header_bytes) { continue; }
        sum = (sum ^ static_cast<std::uint64_t>(state[n])) * 0x100000001b3U;
    }
    set_number(state, checksum_at, sum);
}

/// The stream refuses the state, says so with all parts, and is as it was.
void refuses(attention_stream& stream, const bytes& state, const std::vector<std::string>& parts) {
    const bytes before = stream.save();
    check_refusal([&] { stream.restore(state); }, parts);
    CHECK((stream.save() == before));
}

}  // namespace

TEST_CASE("stream state: saved and restored at every cut") {
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, how);
    attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
    for (count cut = 0; cut <= sizes.keys; ++cut) {
        const bytes state = stream.save();
        CHECK(state.size() == stream.saved_bytes());
        const count carried = (70 + cut) % 128 - (cut < 58 ? 70 : 0);
        const count floats = 2 * 4 * 3 * (3 + 6) + 2 * 2 * carried * (5 + 6);
        CHECK(state.size() == header_bytes + 4 * static_cast<std::size_t>(floats));
        attention_stream other(given.q.view(), stream_sizes_of(sizes), how);
        if (cut % 3 == 0) { add_keys(other, given, 0, cut / 2); }  // to be forgotten
        other.restore(state);
        CHECK(other.keys_added() == cut);
        CHECK((other.save() == state));
        add_keys(other, given, cut, sizes.keys - cut);
        INFO("cut at ", cut);
        CHECK(first_difference(finished(other, sizes), want) == "");
        if (cut < sizes.keys) { add_keys(stream, given, cut, 1); }
    }
}

TEST_CASE("stream state: random masks, types and rare values; a save and restore after each piece") {
    random_source random(52);
    for (count number = 0; number < by_effort(20, 40, 150); ++number) {
        const attention_case of = streamable_sizes(random);
        const mask_case made = streamable_masks(random, of);
        const inputs given = make_inputs(of);
        if (number % 4 == 0) { given.v.set(0, 0, random.between(0, of.keys - 1), 0, quiet_nan); }
        if (number % 4 == 1) {
            given.q.fill([] { return 0.0F; });
        }
        INFO(show(of), ", ", made.names);
        const row_results want = at_once(of, given, made.how);
        bytes state = attention_stream(given.q.view(), stream_sizes_of(of), made.how).save();
        count first = 0;
        for (const count piece : random_pieces(random, of.keys)) {
            attention_stream next(given.q.view(), stream_sizes_of(of), made.how);
            next.restore(state);
            add_keys(next, given, first, piece);
            state = next.save();
            first += piece;
        }
        attention_stream last(given.q.view(), stream_sizes_of(of), made.how);
        last.restore(state);
        CHECK(first_difference(finished(last, of), want) == "");
    }
}

TEST_CASE("stream state: the same bytes on every instruction set, in any pieces, on any number of threads") {
    const inputs given = make_inputs(sizes);
    const bytes state = stream_over(sizes, given, how, {280}).save();
    const tilewise::isa before = tilewise::active_isa();
    for (const tilewise::isa isa : tilewise::available_isas()) {
        tilewise::force_isa(isa);
        tilewise::options threaded = how;
        threaded.threads = 3;
        CHECK((stream_over(sizes, given, threaded, {1, 200, 79}).save() == state));
        tilewise::unforce_isa();
    }
    CHECK(tilewise::active_isa() == before);
    // The same on other systems; it changes if the contract or the format does.
    INFO("checksum ", number_at(state, checksum_at));
    CHECK(number_at(state, checksum_at) == 0x502110b3c89eca98U);
}

TEST_CASE("stream state: the instruction set may change on the way") {
    const inputs given = make_inputs(sizes);
    const row_results want = at_once(sizes, given, how);
    attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
    count first = 0;
    while (first < sizes.keys) {
        for (const tilewise::isa isa : tilewise::available_isas()) {
            tilewise::force_isa(isa);
            const count piece = std::min<count>(50, sizes.keys - first);
            add_keys(stream, given, first, piece);
            first += piece;
            tilewise::unforce_isa();
        }
    }
    CHECK(first_difference(finished(stream, sizes), want) == "");
}

TEST_CASE("stream state: what is not a whole state of this version is refused") {
    const inputs given = make_inputs(sizes);
    const bytes good = stream_over(sizes, given, how, {200}).save();
    attention_stream stream = stream_over(sizes, given, how, {33});
    for (std::size_t size = 0; size < good.size(); size += size < 130 ? 1 : 97) {
        INFO("size ", size);
        refuses(stream, bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)), {"state: "});
    }
    bytes longer = good;
    longer.push_back({});
    refuses(stream, longer, {"state: ", "bytes given"});
    set_number(longer, 16, longer.size());
    correct_checksum(longer);
    refuses(stream, longer, {"state: ", "bytes given", "after 200 keys"});
    bytes changed = good;
    changed[0] = std::byte{'t'};
    refuses(stream, changed, {"state: other bytes", "TILEWISE"});
    changed = good;
    changed[8] = std::byte{2};
    refuses(stream, changed, {"state: version 2 given, it must be 1"});
    changed = good;
    changed[12] = std::byte{120};
    refuses(stream, changed, {"state: a header of 120 bytes"});
    for (std::size_t n = 0; n < good.size(); n += n < 200 ? 1 : 41) {
        changed = good;
        changed[n] ^= std::byte{4};
        INFO("byte ", n);
        refuses(stream, changed, {"state: "});
    }
    stream.restore(good);
    CHECK(stream.keys_added() == 200);
}

TEST_CASE("stream state: other sizes, options and queries are refused by name") {
    const inputs given = make_inputs(sizes);
    const bytes good = stream_over(sizes, given, how, {200}).save();
    attention_stream stream(given.q.view(), stream_sizes_of(sizes), how);
    const char* const names[] = {"batch",    "heads",     "kv_heads",    "n_queries",
                                 "head_dim", "value_dim", "key_position"};
    for (std::size_t n = 0; n < 7; ++n) {
        bytes changed = good;
        set_number(changed, first_size_at + 8 * n, 77);
        correct_checksum(changed);
        refuses(stream, changed, {"state: ", names[n], " is 77, it must be "});
    }
    for (const std::uint64_t keys : {std::uint64_t{301}, std::uint64_t{1} << 62U, ~std::uint64_t{0}}) {
        bytes changed = good;
        set_number(changed, keys_at, keys);
        correct_checksum(changed);
        refuses(stream, changed, {"state: ", "keys seen", "at most 300"});
    }
    const std::vector<float> numbers = {1, 2, 3, 4};
    std::vector<tilewise::options> others(8, how);
    others[0].scale = 0.1F;
    others[1].window_left = 7;
    others[2].soft_cap = 3.0F;
    others[3].sinks = numbers;
    others[4].alibi_slopes = numbers;
    others[5].prefix = 1;
    others[6].causal = tilewise::causal::none;
    others[7].query_position = 4;
    for (const tilewise::options& other : others) {
        attention_stream different(given.q.view(), stream_sizes_of(sizes), other);
        refuses(different, good, {"state: saved with other options"});
    }
    given.q.set(1, 3, 2, 4, 0.25F);
    refuses(stream, good, {"state: saved with other queries"});
}

TEST_CASE("stream state: the caller's memory must have the right size") {
    const inputs given = make_inputs(sizes);
    const attention_stream stream = stream_over(sizes, given, how, {200});
    bytes room(stream.saved_bytes() - 1, std::byte{7});
    CHECK_THROWS_AS(stream.save(room), std::invalid_argument);
    CHECK((room == bytes(room.size(), std::byte{7})));
    room.resize(stream.saved_bytes());
    stream.save(room);
    CHECK((room == stream.save()));
}

}  // namespace tilewise_tests

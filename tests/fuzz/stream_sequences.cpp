#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <tilewise/tilewise.hpp>
#include <vector>

#include "agreement.hpp"
#include "fuzz_call.hpp"
#include "sequences.hpp"

namespace tilewise_tests {
namespace {

using count = std::int64_t;
using tilewise::attention_stream;
using tilewise::axis;
using state = std::vector<std::byte>;

/// Takes away what a stream refuses.
void make_streamable(fuzz_call& call) {
    tilewise::options& how = call.how;
    how.mask = how.bias = how.blocks.visible = how.ranges.first = how.ranges.last = how.block_table = {};
    how.key_lengths = how.key_positions = how.query_starts = how.key_starts = {};
    how.lse = how.extra.row_maximum = how.extra.entropy = how.extra.key_weights = how.extra.weights = {};
    how.extra.weight_rows = {};
}

struct streamed_call {
    fuzz_call call;
    tilewise::tensor lse;
    tilewise::tensor row_maximum;
    tilewise::stream_sizes sizes;
    std::string refusal;  ///< of the reference
    std::deque<result_memory> want;

    explicit streamed_call(byte_source& bytes);

    [[nodiscard]] attention_stream start(byte_source& bytes) const {
        return {call.q, sizes, with(call.how, pick_setting(bytes))};
    }
};

streamed_call::streamed_call(byte_source& bytes)
    : call(bytes), lse(call.how.lse), row_maximum(call.how.extra.row_maximum) {
    if (!bytes.one_in(16)) { make_streamable(call); }
    sizes.kv_heads = call.k.heads();
    sizes.value_dim = call.v.head_dim();
    if (!bytes.one_in(4)) { sizes.total_keys = call.k.tokens(); }
    tilewise::options how = call.how;
    how.lse = lse;
    how.extra.row_maximum = row_maximum;
    how.arithmetic = tilewise::arithmetic::exact;  // that of a stream, whatever is asked for
    if (call.is_paged) { call.k.extents[0] = call.v.extents[0] = std::min(call.q.batch(), call.k.batch()); }
    refusal = refusal_of([&] { tilewise::reference::attention(call.q, call.k, call.v, call.out, how); });
    want = call.memory.results();
    for (result_memory& result : call.memory.results()) { result.clear(); }
}

void choose_isa(byte_source& bytes) { tilewise::force_isa(bytes.pick(tilewise::available_isas())); }

/// Calls that must be refused, or do nothing.
void disturb(attention_stream& stream, const streamed_call& of, byte_source& bytes) {
    const state before = stream.save();
    const fuzz_call& call = of.call;
    tilewise::const_tensor k = call.k.slice(axis::tokens, 0, 0);
    tilewise::const_tensor v = call.v.slice(axis::tokens, 0, 0);
    const std::uint8_t what = bytes.byte();
    tilewise::const_tensor& wrong = what % 2 == 0 ? k : v;
    wrong.extents[what / 2 % 4] += 1 + what / 16;
    wrong.data = call.q.data;
    if (what % 8 == 7) { wrong.extents[2] = -1; }
    if (refusal_of([&] { stream.add(k, v); }).empty()) { report("a wrong piece was accepted"); }
    state damaged = before;
    damaged[static_cast<std::size_t>(bytes.between(0, 65535)) % damaged.size()] ^= std::byte{0x20};
    if (bytes.one_in(4)) { damaged.pop_back(); }
    if (refusal_of([&] { stream.restore(damaged); }).empty()) { report("a damaged state was accepted"); }
    if (of.sizes.total_keys.value_or(stream.keys_added()) != stream.keys_added() &&
        refusal_of([&] { stream.finish(call.out, of.lse, of.row_maximum); }).empty()) {
        report("finish accepted missing keys");
    }
    if (stream.save() != before) { report("a refused call changed the stream"); }
}

void add_pieces(attention_stream& stream, const streamed_call& of, byte_source& bytes) {
    const count keys = of.call.k.tokens();
    while (stream.keys_added() < keys) {
        const count left = keys - stream.keys_added();
        const count piece =
            bytes.one_in(4) ? bytes.between(0, left) : bytes.between(1, std::min<count>(left, 140));
        if (bytes.one_in(4)) { choose_isa(bytes); }
        if (bytes.one_in(6)) { disturb(stream, of, bytes); }
        if (bytes.one_in(5)) {
            attention_stream other = of.start(bytes);
            other.restore(stream.save());
            stream = std::move(other);
        }
        const count first = stream.keys_added();
        const count step = bytes.rest().empty() ? left : std::min(piece, left);
        stream.add(of.call.k.slice(axis::tokens, first, step), of.call.v.slice(axis::tokens, first, step));
    }
}

bool all_are_clear(const std::deque<result_memory>& results) {
    return std::all_of(results.begin(), results.end(),
                       [](const result_memory& result) { return result.is_clear(); });
}

// States begin with a header; see attention_stream::restore.
constexpr std::size_t place_of_size = 16;
constexpr std::size_t place_of_checksum = 104;
constexpr std::size_t header_bytes = 112;

/// Makes the size and the checksum fit.
void sign(state& forged) {
    if (forged.size() < header_bytes) { return; }
    const std::uint64_t size = forged.size();
    std::memcpy(forged.data() + place_of_size, &size, sizeof size);
    std::uint64_t sum = 0xcbf29ce484222325U;
    for (std::size_t n = 0; n < forged.size(); ++n) {
        if (n >= place_of_checksum && n < header_bytes) { continue; }
        sum = (sum ^ static_cast<std::uint64_t>(forged[n])) * 0x100000001b3U;
    }
    std::memcpy(forged.data() + place_of_checksum, &sum, sizeof sum);
}

state forge(const state& from, byte_source& bytes) {
    if (bytes.one_in(8)) {
        state made;
        for (const std::uint8_t byte : bytes.rest()) { made.push_back(std::byte{byte}); }
        return made;
    }
    state made = from;
    for (count changes = bytes.between(0, 5); changes > 0; --changes) {
        const bool in_header = bytes.one_in(2);
        const auto place =
            static_cast<std::size_t>(in_header ? bytes.between(0, 111) : bytes.between(0, 65535));
        made[place % made.size()] = static_cast<std::byte>(bytes.byte());
    }
    if (bytes.one_in(4)) {
        made.resize(static_cast<std::size_t>(bytes.between(0, 65535)) % (2 * made.size()));
    }
    if (!bytes.one_in(4)) { sign(made); }
    return made;
}

}  // namespace

void check_stream(byte_source& bytes) {
    const streamed_call of(bytes);
    const std::deque<result_memory>& results = of.call.memory.results();
    const std::string refusal = refusal_of([&] {
        choose_isa(bytes);
        attention_stream stream = of.start(bytes);
        add_pieces(stream, of, bytes);
        stream.finish(of.call.out, of.lse, of.row_maximum);
    });
    tilewise::unforce_isa();
    if (refusal.empty() && of.call.kind == call_kind::f64) { report("a stream computes in f64"); }
    if (!refusal.empty()) {
        if (!all_are_clear(results)) { report("a stream that was refused wrote something: " + refusal); }
        return;
    }
    for (std::size_t n = 0; of.refusal.empty() && n < of.want.size(); ++n) {
        const bool is_wanted =
            of.want[n].name == "out" || of.want[n].name == "lse" || of.want[n].name == "row_maximum";
        if (is_wanted && results[n].bytes != of.want[n].bytes) {
            report(of.want[n].name + " of a stream differs from the reference's");
        }
    }
}

void check_states(byte_source& bytes) {
    streamed_call of(bytes);
    const std::deque<std::vector<std::byte>> inputs = of.call.memory.inputs();
    static_cast<void>(refusal_of([&] {
        choose_isa(bytes);
        attention_stream stream = of.start(bytes);
        const count first = bytes.between(0, of.call.k.tokens());
        stream.add(of.call.k.slice(axis::tokens, 0, first), of.call.v.slice(axis::tokens, 0, first));
        const state before = stream.save();
        if (!refusal_of([&] { stream.restore(forge(before, bytes)); }).empty()) {
            if (stream.save() != before) { report("a refused state changed the stream"); }
            return;
        }
        // The numbers may be any: nothing else may be touched.
        const count left = of.call.k.tokens() - std::min(stream.keys_added(), of.call.k.tokens());
        const count from = of.call.k.tokens() - left;
        stream.add(of.call.k.slice(axis::tokens, from, left), of.call.v.slice(axis::tokens, from, left));
        stream.finish(of.call.out, of.lse, of.row_maximum);
    }));
    tilewise::unforce_isa();
    for (const result_memory& result : of.call.memory.results()) {
        if (!result.are_gaps_clear()) { report("a stream wrote beside " + result.name); }
    }
    if (of.call.memory.inputs() != inputs) { report("an input was written"); }
}

}  // namespace tilewise_tests

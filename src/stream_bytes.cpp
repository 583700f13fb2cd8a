// The state of an attention_stream as bytes (the format is in stream.hpp), and back.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "contract.hpp"
#include "reference_elements.hpp"
#include "stream_state.hpp"
#include "views.hpp"

namespace tilewise::detail {

namespace {

constexpr std::string_view magic = "TILEWISE";
constexpr std::uint32_t version = 1;
constexpr std::size_t header_bytes = 112;
constexpr std::size_t checksum_at = 104;

/// FNV-1a over bytes, the lowest of a number first.
class fingerprint {
public:
    void add(std::uint64_t number, unsigned bytes = 8) {
        for (unsigned n = 0; n < bytes; ++n) {
            value_ = (value_ ^ (number >> 8U * n & 0xffU)) * 0x100000001b3U;
        }
    }
    void add(std::int64_t number) { add(static_cast<std::uint64_t>(number)); }
    void add(bool set) { add(std::uint64_t{set}); }
    void add(float number) { add(std::bit_cast<std::uint32_t>(number), 4); }
    [[nodiscard]] std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0xcbf29ce484222325U;
};

std::uint64_t fingerprint_of_options(const problem& p) {
    fingerprint f;
    f.add(p.intervals.causal);
    for (const std::int64_t number :
         {p.intervals.window_left, p.intervals.window_right, p.intervals.prefix, p.intervals.attention_chunk,
          *p.query_position, p.intervals.document_count}) {
        f.add(number);
    }
    for (std::int64_t d = 0; d < p.intervals.document_count; ++d) { f.add(p.intervals.documents[d]); }
    f.add(p.scores.multiply);
    for (const double number : {p.scores.scale, p.scores.exponent, p.scores.soft_cap}) {
        f.add(static_cast<float>(number));
    }
    for (const float* const values : {p.scores.alibi_slopes, p.sinks}) {
        f.add(values != nullptr);
        for (std::int64_t h = 0; h < p.heads && values != nullptr; ++h) { f.add(values[h]); }
    }
    f.add(p.scores.function != nullptr);
    return f.value();
}

/// NaN of one kind only.
float canonical(float value) {
    return value == value ? value : std::bit_cast<float>(contract::binary32::canonical_nan_bits);
}

std::uint64_t fingerprint_of_queries(const const_tensor& q) {
    fingerprint f;
    const auto& s = q.strides;
    for (std::int64_t b = 0; b < q.batch(); ++b) {
        for (std::int64_t h = 0; h < q.heads(); ++h) {
            for (std::int64_t t = 0; t < q.tokens(); ++t) {
                for (std::int64_t i = 0; i < q.head_dim(); ++i) {
                    const std::int64_t index = b * s[0] + h * s[1] + t * s[2] + i * s[3];
                    f.add(canonical(reference::read_element(q.data, q.type, index)));
                }
            }
        }
    }
    return f.value();
}

std::uint64_t checksum_of(std::span<const std::byte> all) {
    fingerprint f;
    for (std::size_t n = 0; n < all.size(); ++n) {
        if (n < checksum_at || n >= header_bytes) { f.add(static_cast<std::uint64_t>(all[n]), 1); }
    }
    return f.value();
}

void put(std::byte*& to, std::uint64_t number, unsigned bytes) {
    for (unsigned n = 0; n < bytes; ++n) { *to++ = static_cast<std::byte>(number >> 8U * n & 0xffU); }
}
void put(std::byte*& to, float number) { put(to, std::bit_cast<std::uint32_t>(canonical(number)), 4); }

std::uint64_t take(const std::byte*& from, unsigned bytes) {
    std::uint64_t number = 0;
    for (unsigned n = 0; n < bytes; ++n) { number |= static_cast<std::uint64_t>(*from++) << 8U * n; }
    return number;
}
void take(const std::byte*& from, float& number) {
    number = std::bit_cast<float>(static_cast<std::uint32_t>(take(from, 4)));
}

/// A number in the header, by the name that an error gives it.
struct field {
    std::string_view name;
    std::uint64_t value;
};

/// What must be in the header for the state to fit to the stream.
std::array<field, 7> sizes_of(const problem& p) {
    const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    return {{{"batch", number(p.batch)},
             {"heads", number(p.heads)},
             {"kv_heads", number(p.kv_heads)},
             {"n_queries", number(p.queries)},
             {"head_dim", number(p.head_dim)},
             {"value_dim", number(p.value_dim)},
             {"key_position", number(p.key_position)}}};
}

/// Calls visit(float&) for all that is saved of the carried keys, or values.
template <class Floats, class Visit>
void for_each_carried(const stream_state& s, std::int64_t carried, std::int64_t dim, Floats& memory,
                      const Visit& visit) {
    for (std::int64_t head = 0; head < s.sizes.batch * s.sizes.kv_heads; ++head) {
        for (std::int64_t i = 0; i < carried * dim; ++i) {
            visit(memory[static_cast<std::size_t>(head * contract::chunk_keys * dim + i)]);
        }
    }
}

/// Bytes of a state with so many carried keys.
std::size_t bytes_with(const stream_state& s, std::int64_t carried) {
    const auto heads = static_cast<std::size_t>(s.sizes.batch * s.sizes.kv_heads);
    const auto dims = static_cast<std::size_t>(s.sizes.head_dim + s.sizes.value_dim);
    return header_bytes + (s.rows.size() + heads * dims * static_cast<std::size_t>(carried)) * sizeof(float);
}

/// Checks the header, and finds the keys that the state has seen.
bool check_header(const stream_state& s, std::span<const std::byte> bytes, std::int64_t& keys_seen) {
    const std::byte* from = bytes.data();
    for (std::size_t n = 0; n < magic.size(); ++n) {
        if (n >= bytes.size() || from[n] != static_cast<std::byte>(magic[n])) {
            return refuse("state: other bytes given, it must be what save wrote, which begins with ", magic);
        }
    }
    if (bytes.size() < header_bytes) {
        return refuse("state: ", bytes.size(), " bytes given, the header has ", header_bytes);
    }
    from += magic.size();
    const std::uint64_t given_version = take(from, 4);
    if (given_version != version) {
        return refuse("state: version ", given_version, " given, it must be ", version);
    }
    if (const std::uint64_t size = take(from, 4); size != header_bytes) {
        return refuse("state: a header of ", size, " bytes given, it must have ", header_bytes);
    }
    if (const std::uint64_t size = take(from, 8); size != bytes.size()) {
        return refuse("state: ", bytes.size(), " bytes given, it must be ", size, ", as it says itself");
    }
    for (const field& wanted : sizes_of(s.sizes)) {
        if (const std::uint64_t given = take(from, 8); given != wanted.value) {
            return refuse("state: ", wanted.name, " is ", static_cast<std::int64_t>(given), ", it must be ",
                          static_cast<std::int64_t>(wanted.value), " as in the stream");
        }
    }
    const std::uint64_t keys = take(from, 8);
    const std::int64_t most = s.total_keys.value_or(std::int64_t{1} << 61);
    if (keys > static_cast<std::uint64_t>(most)) {
        return refuse("state: ", keys, " keys seen, the stream has at most ", most);
    }
    if (take(from, 8) != fingerprint_of_options(s.sizes)) {
        return refuse("state: saved with other options, they must be those of the stream");
    }
    if (take(from, 8) != fingerprint_of_queries(s.q)) {
        return refuse("state: saved with other queries, they must be those of the stream");
    }
    keys_seen = static_cast<std::int64_t>(keys);
    return true;
}

}  // namespace

std::size_t saved_bytes(const stream_state& s) { return bytes_with(s, s.carried()); }

bool save(const stream_state& s, std::span<std::byte> to) {
    const std::size_t size = saved_bytes(s);
    if (to.size() != size) {
        return refuse("to: ", to.size(), " bytes given, it must be ", size, ", saved_bytes()");
    }
    std::byte* place = to.data();
    for (const char c : magic) { *place++ = static_cast<std::byte>(c); }
    put(place, version, 4);
    put(place, header_bytes, 4);
    put(place, size, 8);
    for (const field& one : sizes_of(s.sizes)) { put(place, one.value, 8); }
    put(place, static_cast<std::uint64_t>(s.keys), 8);
    put(place, fingerprint_of_options(s.sizes), 8);
    put(place, fingerprint_of_queries(s.q), 8);
    place = to.data() + header_bytes;
    // A zero's sign, which no result depends on, could differ between instruction sets.
    for (const float number : s.rows) { put(place, number + 0.0F); }
    const auto put_one = [&](float number) { put(place, number); };
    for_each_carried(s, s.carried(), s.sizes.head_dim, s.carried_k, put_one);
    for_each_carried(s, s.carried(), s.sizes.value_dim, s.carried_v, put_one);
    place = to.data() + checksum_at;
    put(place, checksum_of(to), 8);
    return true;
}

bool restore(stream_state& s, std::span<const std::byte> from) {
    stream_state other;
    std::int64_t keys = 0;
    if (!check_header(s, from, keys)) { return false; }
    other.sizes.key_position = s.sizes.key_position;
    other.keys = keys;
    const std::int64_t carried = other.carried();
    if (from.size() != bytes_with(s, carried)) {
        return refuse("state: ", from.size(), " bytes given, it must be ", bytes_with(s, carried), " after ",
                      keys, " keys");
    }
    const std::byte* place = from.data() + checksum_at;
    if (take(place, 8) != checksum_of(from)) {
        return refuse("state: bytes given that are not as they were saved, their checksum must fit");
    }
    s.keys = keys;
    for (float& number : s.rows) { take(place, number); }
    const auto take_one = [&](float& number) { take(place, number); };
    for_each_carried(s, carried, s.sizes.head_dim, s.carried_k, take_one);
    for_each_carried(s, carried, s.sizes.value_dim, s.carried_v, take_one);
    return true;
}

}  // namespace tilewise::detail

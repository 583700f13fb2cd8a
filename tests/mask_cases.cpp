#include "mask_cases.hpp"

#include <cmath>
#include <cstddef>
#include <limits>

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::const_tensor;
using tilewise::element_type;

constexpr count whole_sequence = std::numeric_limits<count>::max();

bool one_in(random_source& random, count n) { return random.between(1, n) == 1; }

void add_intervals(random_source& random, mask_case& made) {
    const attention_case& sizes = made.sizes;
    tilewise::options& how = made.how;
    how.causal = all_causal[static_cast<std::size_t>(random.between(0, 2))];
    if (one_in(random, 3)) { how.window_left = random.between(0, 200); }
    if (one_in(random, 4)) { how.key_position = random.between(1, 400); }
    if (one_in(random, 4)) { how.window_right = random.between(0, 200); }
    if (one_in(random, 3)) { how.prefix = random.between(0, how.key_position + sizes.keys + 5); }
    if (one_in(random, 4)) { how.attention_chunk = random.between(1, 150); }
    if (one_in(random, 4) && how.causal != tilewise::causal::top_left) {
        how.query_position = how.key_position + random.between(-10, sizes.keys + 10);
    }
    if (one_in(random, 4)) {
        made.documents = {random.between(-3, 3)};
        while (made.documents.back() < how.key_position + sizes.keys - 10) {
            made.documents.push_back(made.documents.back() + random.between(0, 100));
        }
        made.documents.push_back(made.documents.back());
        how.documents = made.documents;
    }
    if (one_in(random, 4)) {
        for (count b = 0; b < sizes.batch; ++b) { made.key_lengths.push_back(random.between(0, sizes.keys)); }
        how.key_lengths = made.key_lengths;
    }
    if (one_in(random, 4)) {
        for (count row = 0; row < sizes.heads * sizes.queries; ++row) {
            made.first_keys.push_back(
                static_cast<std::int32_t>(how.key_position + random.between(-5, sizes.keys)));
            made.last_keys.push_back(made.first_keys.back() +
                                     static_cast<std::int32_t>(random.between(-2, sizes.keys)));
        }
        const std::array<count, 4> extents = {1, sizes.heads, sizes.queries, 1};
        const std::array<count, 4> strides = {0, sizes.queries, 1, 1};
        how.ranges = {const_tensor(made.first_keys.data(), element_type::i32, extents, strides),
                      const_tensor(made.last_keys.data(), element_type::i32, extents, strides)};
    }
}

/// Bytes that are all set, all clear, or a mixture of stretches and single elements.
std::vector<std::uint8_t> mask_bytes(random_source& random, count size) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
    const count kind = random.between(0, 3);
    std::uint8_t now = 0xff;
    for (std::uint8_t& byte : bytes) {
        if (kind == 2 && one_in(random, 60)) { now = static_cast<std::uint8_t>(~now); }
        byte = kind == 0   ? std::uint8_t{0xff}
               : kind == 1 ? std::uint8_t{0}
               : kind == 2 ? now
                           : static_cast<std::uint8_t>(random.bits());
    }
    return bytes;
}

void add_tensor_masks(random_source& random, mask_case& made) {
    const attention_case& s = made.sizes;
    if (one_in(random, 3)) {
        const element_type type = one_in(random, 2) ? element_type::bit : element_type::boolean;
        made.mask = mask_bytes(random, s.batch * s.queries * s.keys * 2 + 8);
        const count last_stride = one_in(random, 4) ? 2 : 1;
        const count row = s.keys * last_stride;
        made.how.mask = one_in(random, 3)
                            ? const_tensor(made.mask.data(), type, {1, 1, 1, s.keys}, {7, 7, 7, last_stride})
                            : const_tensor(made.mask.data(), type, {s.batch, 1, s.queries, s.keys},
                                           {s.queries * row, 0, row, last_stride});
    }
    if (one_in(random, 4)) {
        const count query_block = one_in(random, 8) ? whole_sequence : random.between(1, 64);
        const count key_block = one_in(random, 4) ? whole_sequence : random.between(1, 200);
        const count rows = (s.queries - 1) / query_block + 1;
        const count columns = (s.keys - 1) / key_block + 1;
        for (count n = 0; n < s.heads * rows * columns; ++n) {
            made.blocks.push_back(static_cast<std::uint8_t>(random.between(0, 1)));
        }
        made.how.blocks = {const_tensor(made.blocks.data(), element_type::boolean,
                                        {1, s.heads, rows, columns}, {0, rows * columns, columns, 1}),
                           query_block, key_block};
    }
}

void change_scores(void* /*context*/, const tilewise::score_tile& tile) noexcept {
    for (count j = 0; j < tile.keys; ++j) {
        for (count i = 0; i < tile.queries; ++i) {
            tile.scores[i * tile.query_stride + j * tile.key_stride] +=
                score_change(tile.query_position + i, tile.first_key + j);
        }
    }
}

void add_modifiers(random_source& random, mask_case& made) {
    const attention_case& s = made.sizes;
    if (one_in(random, 3)) {
        for (count n = 0; n < s.heads * s.queries * s.keys; ++n) {
            made.bias.push_back(one_in(random, 9)    ? -infinity
                                : one_in(random, 50) ? -1e38F
                                                     : random.normal());
        }
        const element_type type = float_types[random.bits() % float_types.size()];
        for (float& value : made.bias) {
            const std::uint32_t bits = stored_bits(value, type);
            if (type != element_type::f32) { made.short_bias.push_back(static_cast<std::uint16_t>(bits)); }
            value = value_of_bits(bits, type);
        }
        const void* const data =
            type == element_type::f32 ? static_cast<const void*>(made.bias.data()) : made.short_bias.data();
        made.how.bias = one_in(random, 4) ? const_tensor(data, type, {1, 1, 1, s.keys}, {0, 0, 0, 1})
                                          : const_tensor(data, type, {1, s.heads, s.queries, s.keys},
                                                         {0, s.queries * s.keys, s.keys, 1});
    }
    for (count h = 0; h < s.heads; ++h) {
        made.slopes.push_back(std::ldexp(1.0F, -static_cast<int>(random.between(1, 8))));
        made.sinks.push_back(one_in(random, 5) ? -infinity : 3 * random.normal());
    }
    if (one_in(random, 4)) { made.how.alibi_slopes = made.slopes; }
    if (one_in(random, 4)) { made.how.sinks = made.sinks; }
    if (one_in(random, 4)) { made.how.soft_cap = one_in(random, 2) ? 0.7F : 30.0F; }
    if (one_in(random, 4)) { made.how.scale = random.normal(); }
    if (one_in(random, 4)) { made.how.score_function.call = change_scores; }
}

std::string names_of(const tilewise::options& how) {
    std::string names = show(how.causal);
    const auto add = [&](bool is_set, const std::string& name) { names += is_set ? ", " + name : ""; };
    add(how.window_left.has_value(), "window_left " + std::to_string(how.window_left.value_or(0)));
    add(how.window_right.has_value(), "window_right " + std::to_string(how.window_right.value_or(0)));
    add(how.key_position != 0, "key_position " + std::to_string(how.key_position));
    add(how.prefix != 0, "prefix " + std::to_string(how.prefix));
    add(how.attention_chunk != 0, "attention_chunk " + std::to_string(how.attention_chunk));
    add(how.query_position.has_value(), "query_position " + std::to_string(how.query_position.value_or(0)));
    add(!how.documents.empty(), "documents");
    add(!how.key_lengths.empty(), "key_lengths");
    add(how.ranges.first.data != nullptr, "ranges");
    add(how.mask.data != nullptr, how.mask.type == element_type::bit ? "mask of bits" : "mask of bytes");
    add(how.blocks.visible.data != nullptr, "blocks");
    add(how.soft_cap != 0.0F, "soft_cap " + std::to_string(how.soft_cap));
    add(how.bias.data != nullptr, "bias in " + show(how.bias.type));
    add(!how.alibi_slopes.empty(), "alibi_slopes");
    add(how.score_function.call != nullptr, "score_function");
    add(!how.sinks.empty(), "sinks");
    add(how.scale.has_value(), "scale " + show(how.scale.value_or(0.0F)));
    return names;
}

/// Where (b, h, i, j) is in a tensor whose extents of 1 serve all.
count offset_in(const const_tensor& view, count b, count h, count i, count j) {
    const std::array<count, 4> at = {b, h, i, j};
    count offset = 0;
    for (std::size_t a = 0; a < 4; ++a) { offset += view.extents[a] == 1 ? 0 : at[a] * view.strides[a]; }
    return offset;
}

bool is_set(const const_tensor& view, count offset) {
    const auto* const bytes = static_cast<const std::uint8_t*>(view.data);
    return view.type == element_type::bit ? (bytes[offset / 8] >> (offset % 8) & 1) != 0 : bytes[offset] != 0;
}

count keys_of(const mask_case& of, count b) {
    return of.key_lengths.empty() ? of.sizes.keys : of.key_lengths[static_cast<std::size_t>(b)];
}

count position_of(const mask_case& of, count b, count i) {
    if (of.how.causal == tilewise::causal::top_left) { return of.how.key_position + i; }
    return i + of.how.query_position.value_or(of.how.key_position + keys_of(of, b) - of.sizes.queries);
}

count document_of(const mask_case& of, count position) {
    for (std::size_t d = 0; d + 1 < of.documents.size(); ++d) {
        if (of.documents[d] <= position && position < of.documents[d + 1]) { return static_cast<count>(d); }
    }
    return -1;
}

count floor_of_quotient(count a, count b) {
    return static_cast<count>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

}  // namespace

mask_case random_masks(random_source& random, const attention_case& sizes) {
    mask_case made;
    made.sizes = sizes;
    made.how.arithmetic = sizes.arithmetic;
    add_intervals(random, made);
    add_tensor_masks(random, made);
    add_modifiers(random, made);
    made.names = names_of(made.how);
    return made;
}

float score_change(count query_position, count key) {
    if ((query_position + key) % 11 == 3) { return -infinity; }
    return 0.25F * static_cast<float>((query_position + 3 * key) % 7);
}

bool sees(const mask_case& of, count b, count h, count i, count key) {
    const tilewise::options& how = of.how;
    const count p = position_of(of, b, i);
    const count j = how.key_position + key;
    if (key >= keys_of(of, b)) { return false; }
    if (j >= how.prefix) {
        if (how.causal != tilewise::causal::none && j > p) { return false; }
        if (how.window_left.has_value() && j < p - *how.window_left) { return false; }
        if (how.window_right.has_value() && j > p + *how.window_right) { return false; }
    }
    if (how.attention_chunk > 0 &&
        floor_of_quotient(p, how.attention_chunk) != floor_of_quotient(j, how.attention_chunk)) {
        return false;
    }
    if (!how.documents.empty() && (document_of(of, p) < 0 || document_of(of, p) != document_of(of, j))) {
        return false;
    }
    if (how.ranges.first.data != nullptr) {
        const auto row = static_cast<std::size_t>(h * of.sizes.queries + i);
        if (j < of.first_keys[row] || j >= of.last_keys[row]) { return false; }
    }
    if (how.mask.data != nullptr && !is_set(how.mask, offset_in(how.mask, b, h, i, key))) { return false; }
    if (how.blocks.visible.data != nullptr) {
        const auto& view = how.blocks.visible;
        const count offset =
            h * view.strides[1] + i / how.blocks.query_block * view.strides[2] + key / how.blocks.key_block;
        if (!is_set(view, offset)) { return false; }
    }
    if (how.score_function.call != nullptr && score_change(p, j) == -infinity) { return false; }
    return how.bias.data == nullptr ||
           of.bias[static_cast<std::size_t>(offset_in(how.bias, b, h, i, key))] != -infinity;
}

namespace {

double score(const mask_case& of, const inputs& given, count b, count h, count i, count j) {
    const tilewise::options& how = of.how;
    const count kv_head = h / (of.sizes.heads / of.sizes.kv_heads);
    double s = 0;
    for (count x = 0; x < of.sizes.key_dim; ++x) {
        s +=
            static_cast<double>(given.q.get(b, h, i, x)) * static_cast<double>(given.k.get(b, kv_head, j, x));
    }
    s *= how.scale.has_value() ? static_cast<double>(*how.scale)
                               : 1.0 / std::sqrt(static_cast<double>(of.sizes.key_dim));
    const auto cap = static_cast<double>(how.soft_cap);
    if (cap != 0) { s = cap * std::tanh(s / cap); }
    if (how.bias.data != nullptr) {
        s += static_cast<double>(of.bias[static_cast<std::size_t>(offset_in(how.bias, b, h, i, j))]);
    }
    if (!how.alibi_slopes.empty()) {
        s -= static_cast<double>(of.slopes[static_cast<std::size_t>(h)]) *
             std::fabs(static_cast<double>(position_of(of, b, i) - how.key_position - j));
    }
    if (how.score_function.call != nullptr) {
        s += static_cast<double>(score_change(position_of(of, b, i), how.key_position + j));
    }
    return s;
}

void add_row(const mask_case& of, const inputs& given, count b, count h, count i, float64_results& results) {
    constexpr double lowest = -std::numeric_limits<double>::infinity();
    const count kv_head = h / (of.sizes.heads / of.sizes.kv_heads);
    const double sink =
        of.how.sinks.empty() ? lowest : static_cast<double>(of.sinks[static_cast<std::size_t>(h)]);
    double largest = sink;
    double largest_score = lowest;
    std::vector<double> scores(static_cast<std::size_t>(of.sizes.keys), lowest);
    for (count j = 0; j < of.sizes.keys; ++j) {
        if (!sees(of, b, h, i, j)) { continue; }
        scores[static_cast<std::size_t>(j)] = score(of, given, b, h, i, j);
        largest_score = std::fmax(largest_score, scores[static_cast<std::size_t>(j)]);
        largest = std::fmax(largest, largest_score);
    }
    std::vector<double> out(static_cast<std::size_t>(of.sizes.value_dim), 0.0);
    double sum = largest == lowest ? 0.0 : std::exp(sink - largest);
    for (count j = 0; j < of.sizes.keys && largest != lowest; ++j) {
        const double weight = std::exp(scores[static_cast<std::size_t>(j)] - largest);
        sum += weight;
        for (std::size_t x = 0; x < out.size() && weight != 0; ++x) {
            out[x] += weight * static_cast<double>(given.v.get(b, kv_head, j, static_cast<count>(x)));
        }
    }
    double entropy = 0;
    for (const double t : scores) {
        const double weight = t == lowest ? 0.0 : std::exp(t - largest) / sum;
        entropy -= weight == 0 ? 0.0 : weight * std::log(weight);
        results.weights.push_back(weight);
    }
    results.entropy.push_back(entropy);
    results.largest.push_back(largest_score);
    for (const double value : out) { results.out.push_back(sum == 0 ? 0.0 : value / sum); }
    results.lse.push_back(sum == 0 ? lowest : largest + std::log(sum));
}

}  // namespace

float64_results model(const mask_case& of, const inputs& given) {
    float64_results results;
    for (count b = 0; b < of.sizes.batch; ++b) {
        for (count h = 0; h < of.sizes.heads; ++h) {
            for (count i = 0; i < of.sizes.queries; ++i) { add_row(of, given, b, h, i, results); }
        }
    }
    return results;
}

}  // namespace tilewise_tests

// Rotary position embedding: angles in turns, their cosines and sines, and the rotation of rows.

#include <tilewise/rotary.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "contract.hpp"
#include "elementary.hpp"
#include "float_environment.hpp"
#include "heap_array.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

constexpr std::int64_t largest_position = std::int64_t{1} << 31;
constexpr double largest_theta = 0x1p64;

/// Rows with no more pairs need no memory.
constexpr std::size_t few_pairs = 256;

/// Cosines and sines of a token's pairs, side by side.
struct token_angles {
    small_array<float, few_pairs> cosines;
    small_array<float, few_pairs> sines;

    [[nodiscard]] bool allocate(std::int64_t pairs) {
        return cosines.allocate(pairs) && sines.allocate(pairs);
    }
};

/// Turns per position of each pair, in two parts: products of `high` (22 bits) and a position are exact.
struct frequency {
    double high;
    double low;
};

using frequencies_of_pairs = small_array<frequency, few_pairs>;

bool find_frequencies(std::int64_t dims, double theta, frequencies_of_pairs& all) {
    if (!all.allocate(dims / 2)) { return false; }
    const double log_theta = elementary::log2(theta);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const double part = static_cast<double>(2 * i) / static_cast<double>(dims);
        const double turns = elementary::exp2(-part * log_theta) * elementary::inverse_of_two_pi;
        const auto bits = std::bit_cast<std::uint64_t>(turns);
        const auto high = std::bit_cast<double>(bits & ~((std::uint64_t{1} << 31U) - 1U));
        all[i] = {high, turns - high};
    }
    return true;
}

elementary::sine_and_cosine sine_and_cosine_at(const frequency& f, std::int64_t position) {
    const auto p = static_cast<double>(position);
    const double turns = p * f.high;
    return elementary::sine_and_cosine_of((turns - elementary::round_to_integer(turns)) + p * f.low);
}

std::int64_t position_of(const rotary_options& how, std::int64_t batch, std::int64_t token,
                         std::int64_t tokens) {
    if (how.positions.empty()) { return how.first_position + token; }
    const bool shared = static_cast<std::int64_t>(how.positions.size()) == tokens;
    return how.positions[static_cast<std::size_t>(shared ? token : batch * tokens + token)];
}

/// Turns one row in place.
template <class Stored>
void rotate_row(Stored* row, std::int64_t stride, rotary_pairs pairs, const token_angles& angles) {
    const auto number = [](float value) {
        return value == value ? value : std::bit_cast<float>(contract::binary32::canonical_nan_bits);
    };
    const auto count = static_cast<std::int64_t>(angles.cosines.size());
    const std::int64_t step = pairs == rotary_pairs::halves ? stride : 2 * stride;
    const std::int64_t apart = pairs == rotary_pairs::halves ? count * stride : stride;
    for (std::int64_t i = 0; i < count; ++i) {
        Stored* const first = row + i * step;
        const auto a = static_cast<float>(first[0]);
        const auto b = static_cast<float>(first[apart]);
        const float c = angles.cosines[static_cast<std::size_t>(i)];
        const float s = angles.sines[static_cast<std::size_t>(i)];
        first[0] = Stored(number(a * c - b * s));
        first[apart] = Stored(number(b * c + a * s));
    }
}

template <class Stored>
void rotate_token(const tensor& x, std::int64_t batch, std::int64_t token, rotary_pairs pairs,
                  const token_angles& angles) {
    for (std::int64_t h = 0; h < x.heads(); ++h) {
        const std::int64_t row = batch * x.strides[0] + h * x.strides[1] + token * x.strides[2];
        rotate_row(static_cast<Stored*>(x.data) + row, x.strides[3], pairs, angles);
    }
}

/// Rotates all tokens; find(position, angles) says by which angles.
template <class Find>
bool rotate(const tensor& turned, std::int64_t dims, const rotary_options& how, const Find& find) {
    const tensor x = with_sound_strides(turned);
    token_angles angles;
    if (!angles.allocate(dims / 2)) { return false; }
    const auto rotate_one = x.type == element_type::f16    ? rotate_token<float16>
                            : x.type == element_type::bf16 ? rotate_token<bfloat16>
                                                           : rotate_token<float>;
    for (std::int64_t t = 0; t < x.tokens(); ++t) {
        for (std::int64_t b = 0; b < x.batch(); ++b) {
            const std::int64_t position = position_of(how, b, t, x.tokens());
            if (b == 0 || position != position_of(how, b - 1, t, x.tokens())) { find(position, angles); }
            rotate_one(x, b, t, how.pairs, angles);
        }
    }
    return true;
}

/// The positions that tokens may have.
struct position_range {
    std::int64_t lowest;
    std::int64_t highest;
    std::string_view reason;

    [[nodiscard]] bool require(std::string_view name, std::int64_t position) const {
        if (position < lowest || position > highest) {
            return refuse(name, ": position ", position, " given, it must be from ", lowest, " to ", highest,
                          reason);
        }
        return true;
    }
};

constexpr position_range all_positions{-largest_position, largest_position, ", within 2^31 of 0"};

bool check_positions(const rotary_options& how, std::int64_t batch, std::int64_t tokens,
                     const position_range& allowed) {
    const auto given = static_cast<std::int64_t>(how.positions.size());
    if (given != tokens && (tokens == 0 || given % tokens != 0 || given / tokens != batch)) {
        return refuse("positions: ", given, " given, it must be one for each of ", tokens,
                      " tokens, of all batch entries or of each of ", batch);
    }
    return std::all_of(how.positions.begin(), how.positions.end(),
                       [&](std::int64_t position) { return allowed.require("positions", position); });
}

/// Checks what all functions have.
bool check_options(const rotary_options& how, std::int64_t batch, std::int64_t tokens,
                   const position_range& allowed) {
    if (how.pairs != rotary_pairs::halves && how.pairs != rotary_pairs::interleaved) {
        return refuse("pairs: number ", static_cast<int>(how.pairs),
                      " given, it must be halves or interleaved");
    }
    if (!how.positions.empty()) { return check_positions(how, batch, tokens, allowed); }
    if (tokens == 0) { return true; }
    if (!allowed.require("first_position", how.first_position)) { return false; }
    if (tokens - 1 > allowed.highest - how.first_position) {
        return refuse("first_position: ", how.first_position, " given, the last of ", tokens,
                      " tokens must be at ", allowed.highest, " at most", allowed.reason);
    }
    return true;
}

bool check_theta(double theta) {
    if (!(theta >= 1.0 && theta <= largest_theta)) {
        return refuse("theta: ", theta, " given, it must be from 1 to 2^64");
    }
    return true;
}

/// Checks what is turned, and finds how many elements of a row are.
bool check_rows(const tensor& x, const rotary_options& how, memory_map& memory, std::int64_t& dims) {
    byte_range bytes;
    if (!check_view("x", x, float_types, bytes) || !memory.write("x", bytes) ||
        !require_distinct_elements("x", x)) {
        return false;
    }
    dims = how.dims.value_or(x.head_dim());
    if (dims < 0 || dims > x.head_dim() || dims % 2 != 0) {
        return refuse("dims: ", dims, " given, it must be even, and from 0 to head_dim, ", x.head_dim());
    }
    return true;
}

bool check_table(std::string_view name, const const_tensor& table, std::int64_t pairs, byte_range& bytes) {
    if (!check_view(name, table, element_type::f32, bytes)) { return false; }
    if (table.batch() != 1 || table.heads() != 1) {
        return refuse(name, ": batch ", table.batch(), " and heads ", table.heads(),
                      " given, both must be 1");
    }
    if (table.head_dim() != pairs) {
        return refuse(name, ": head_dim is ", table.head_dim(), ", it must be ", pairs, ", half of dims");
    }
    return true;
}

bool check_written_table(std::string_view name, const tensor& table, std::int64_t pairs, memory_map& memory) {
    byte_range bytes;
    return check_table(name, table, pairs, bytes) && memory.write(name, bytes);
}

bool check_read_table(std::string_view name, const const_tensor& table, std::int64_t pairs,
                      memory_map& memory) {
    byte_range bytes;
    return check_table(name, table, pairs, bytes) && memory.read(name, bytes);
}

float& entry_of(const tensor& table, std::int64_t row, std::int64_t pair) {
    return static_cast<float*>(table.data)[row * table.strides[2] + pair * table.strides[3]];
}
float entry_of(const const_tensor& table, std::int64_t row, std::int64_t pair) {
    return static_cast<const float*>(table.data)[row * table.strides[2] + pair * table.strides[3]];
}

}  // namespace

status try_rotary_embedding(const tensor& x, const rotary_options& how) noexcept {
    const float_environment standard;
    memory_map memory;
    std::int64_t dims = 0;
    frequencies_of_pairs frequencies;
    if (!check_rows(x, how, memory, dims) || !check_theta(how.theta) ||
        !check_options(how, x.batch(), x.tokens(), all_positions)) {
        return status_of(false);
    }
    if (is_empty(x)) { return {}; }
    if (!find_frequencies(dims, how.theta, frequencies)) { return status_of(false); }
    return status_of(rotate(x, dims, how, [&](std::int64_t position, token_angles& angles) {
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
            const elementary::sine_and_cosine exact = sine_and_cosine_at(frequencies[i], position);
            angles.cosines[i] = static_cast<float>(exact.cosine);
            angles.sines[i] = static_cast<float>(exact.sine);
        }
    }));
}

status try_rotary_embedding(const tensor& x, const const_tensor& cosines, const const_tensor& sines,
                            const rotary_options& how) noexcept {
    const float_environment standard;
    memory_map memory;
    std::int64_t dims = 0;
    if (!check_rows(x, how, memory, dims) || !check_read_table("cosines", cosines, dims / 2, memory) ||
        !check_read_table("sines", sines, dims / 2, memory) ||
        !require_extent("sines", sines, axis::tokens, cosines.tokens(), "cosines") ||
        !check_options(how, x.batch(), x.tokens(), {0, cosines.tokens() - 1, ", a row of the tables"})) {
        return status_of(false);
    }
    if (is_empty(x)) { return {}; }
    return status_of(rotate(x, dims, how, [&](std::int64_t position, token_angles& angles) {
        for (std::int64_t i = 0; i < dims / 2; ++i) {
            angles.cosines[static_cast<std::size_t>(i)] = entry_of(cosines, position, i);
            angles.sines[static_cast<std::size_t>(i)] = entry_of(sines, position, i);
        }
    }));
}

status try_rotary_tables(const tensor& cosines, const tensor& sines, const rotary_options& how) noexcept {
    const float_environment standard;
    memory_map memory;
    const std::int64_t pairs = cosines.head_dim();
    if (!check_written_table("cosines", cosines, pairs, memory) ||
        !check_written_table("sines", sines, pairs, memory) ||
        !require_extent("sines", sines, axis::tokens, cosines.tokens(), "cosines") ||
        !require_distinct_elements("cosines", cosines) || !require_distinct_elements("sines", sines)) {
        return status_of(false);
    }
    if (how.dims.has_value() && (*how.dims / 2 != pairs || *how.dims % 2 != 0)) {
        return status_of(refuse("dims: ", *how.dims, " given, it must be ",
                                2 * static_cast<std::uint64_t>(pairs), ", twice the tables' head_dim"));
    }
    if (!check_theta(how.theta) || !check_options(how, 1, cosines.tokens(), all_positions)) {
        return status_of(false);
    }
    if (is_empty(cosines)) { return {}; }
    frequencies_of_pairs frequencies;
    if (!find_frequencies(2 * pairs, how.theta, frequencies)) { return status_of(false); }
    for (std::int64_t t = 0; t < cosines.tokens(); ++t) {
        for (std::int64_t i = 0; i < pairs; ++i) {
            const elementary::sine_and_cosine exact = sine_and_cosine_at(
                frequencies[static_cast<std::size_t>(i)], position_of(how, 0, t, cosines.tokens()));
            entry_of(cosines, t, i) = static_cast<float>(exact.cosine);
            entry_of(sines, t, i) = static_cast<float>(exact.sine);
        }
    }
    return {};
}

void rotary_embedding(const tensor& x, const rotary_options& how) {
    raise_unless(try_rotary_embedding(x, how));
}

void rotary_embedding(const tensor& x, const const_tensor& cosines, const const_tensor& sines,
                      const rotary_options& how) {
    raise_unless(try_rotary_embedding(x, cosines, sines, how));
}

void rotary_tables(const tensor& cosines, const tensor& sines, const rotary_options& how) {
    raise_unless(try_rotary_tables(cosines, sines, how));
}

}  // namespace tilewise

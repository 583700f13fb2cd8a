// Rotary embedding: angles against long double, rotations against the formula, in every type and layout.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tilewise/rotary.hpp>
#include <vector>

#include "allocation_counter.hpp"
#include "cases.hpp"
#include "refusals.hpp"
#include "support.hpp"
#include "tensors.hpp"

namespace tilewise_tests {

namespace {

using count = std::int64_t;
using tilewise::rotary_options;
using tilewise::rotary_pairs;

struct tables {
    owned_tensor cosines;
    owned_tensor sines;
};

tables make_tables(count positions, count dims, const rotary_options& how) {
    tables made{{{1, 1, positions, dims / 2}}, {{1, 1, positions, dims / 2}}};
    tilewise::rotary_tables(made.cosines.view(), made.sines.view(), how);
    return made;
}

std::vector<count> random_positions(random_source& random) {
    std::vector<count> positions = {
        0, 1, -1, 2, 100, 131071, 1 << 20, -(1 << 30), count{1} << 31, -(count{1} << 31)};
    for (count most = 10; most < count{1} << 31; most *= 7) {
        for (count n = 0; n < by_effort(2, 20, 20); ++n) { positions.push_back(random.between(-most, most)); }
    }
    return positions;
}

/// The largest error of tables in units of the documented bound.
double worst_error(const tables& got, const std::vector<count>& positions, count dims, double theta) {
    long double worst = 0;
    for (std::size_t t = 0; t < positions.size(); ++t) {
        for (count i = 0; i < dims / 2; ++i) {
            const long double part = static_cast<long double>(-2 * i) / static_cast<long double>(dims);
            const long double angle =
                static_cast<long double>(positions[t]) * std::pow(static_cast<long double>(theta), part);
            const long double bound = 0x1p-25L + 0x1p-47L * std::fabs(angle);
            const auto row = static_cast<count>(t);
            const auto error = [&](const owned_tensor& table, long double exact) {
                return std::fabs(static_cast<long double>(table.at(0, 0, row, i)) - exact) / bound;
            };
            worst = std::max({worst, error(got.cosines, std::cos(angle)), error(got.sines, std::sin(angle))});
        }
    }
    return static_cast<double>(worst);
}

/// The formula, one element at a time; token t of batch entry b uses row b * tokens + t of the tables.
void rotate_plainly(const owned_tensor& x, rotary_pairs pairs, count dims, const tables& by) {
    const tilewise::tensor& view = x.view();
    for (count b = 0; b < view.batch(); ++b) {
        for (count h = 0; h < view.heads(); ++h) {
            for (count t = 0; t < view.tokens(); ++t) {
                for (count i = 0; i < dims / 2; ++i) {
                    const count first = pairs == rotary_pairs::halves ? i : 2 * i;
                    const count second = pairs == rotary_pairs::halves ? i + dims / 2 : 2 * i + 1;
                    const float c = by.cosines.at(0, 0, b * view.tokens() + t, i);
                    const float s = by.sines.at(0, 0, b * view.tokens() + t, i);
                    const float one = x.get(b, h, t, first);
                    const float two = x.get(b, h, t, second);
                    x.set(b, h, t, first, one * c - two * s);
                    x.set(b, h, t, second, two * c + one * s);
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("rotary: cosines and sines are as near to long double's as documented") {
    if (std::numeric_limits<long double>::digits < 64) { return; }
    random_source random(81);
    const std::vector<count> positions = random_positions(random);
    for (const count dims : {2, 4, 6, 64, 80, 128, 256}) {
        for (const double theta : {1.0, 1.5, 10000.0, 500000.0, 1e6, 0x1p64}) {
            rotary_options how;
            how.theta = theta;
            how.positions = positions;
            INFO("dims ", dims, ", theta ", theta);
            const double worst = worst_error(make_tables(static_cast<count>(positions.size()), dims, how),
                                             positions, dims, theta);
            CHECK(worst <= 1.0);
        }
    }
}

TEST_CASE("rotary: the same bits everywhere") {
    const tables made = make_tables(5000, 128, {.first_position = 100000});
    std::uint64_t sum = 0;
    for (count t = 0; t < 5000; ++t) {
        for (count i = 0; i < 64; ++i) {
            for (const owned_tensor* const of : {&made.cosines, &made.sines}) {
                sum = (sum ^ bits_of(of->at(0, 0, t, i))) * 0x100000001b3U;
            }
        }
    }
    CHECK(sum == 0xcd5b0ead2bb1c713U);
}

TEST_CASE("rotary: rows are turned as the formula says") {
    random_source random(82);
    for (count number = 0; number < by_effort(60, 200, 200); ++number) {
        const extents sizes = {random.between(1, 2), random.between(1, 3), random.between(1, 5),
                               random.between(0, 40)};
        const tilewise::element_type type = float_types[random.bits() % float_types.size()];
        const layout& where = all_layouts()[random.bits() % output_layouts];
        const count dims =
            sizes[3] % 2 != 0 || number % 2 == 0 ? 2 * random.between(0, sizes[3] / 2) : sizes[3];
        rotary_options how;
        how.pairs = number % 3 == 0 ? rotary_pairs::interleaved : rotary_pairs::halves;
        if (dims != sizes[3] || number % 5 == 0) { how.dims = dims; }
        how.theta = number % 4 == 0 ? 500000.0 : 10000.0;
        const count rows = sizes[0] * sizes[2];
        std::vector<count> positions;
        const count kind = random.between(0, 2);  // a start, per token, per batch entry and token
        how.first_position = random.between(-5, 1000);
        for (count n = 0; n < rows; ++n) {
            positions.push_back(kind == 0   ? how.first_position + n % sizes[2]
                                : kind == 1 ? 7 * (n % sizes[2])
                                            : random.between(0, 9999));
        }
        if (kind > 0) {
            how.positions = std::span(positions).first(static_cast<std::size_t>(kind == 1 ? sizes[2] : rows));
        }
        const owned_tensor got(sizes, where, type);
        const owned_tensor want(sizes, where, type);
        got.fill_normal(static_cast<std::uint64_t>(number));
        want.fill_normal(static_cast<std::uint64_t>(number));
        tilewise::rotary_embedding(got.view(), how);
        rotate_plainly(want, how.pairs, dims,
                       make_tables(rows, dims, {.theta = how.theta, .positions = positions}));
        INFO("number ", number, ", ", show(type), ", ", where.name);
        CHECK(first_difference(got.view(), want.view()) == "");
        CHECK(got.damage_to_gaps() == "");
    }
}

TEST_CASE("rotary: with tables, the same bits as without") {
    for (const tilewise::element_type type : float_types) {
        const owned_tensor with({2, 3, 20, 24}, dense(), type);
        const owned_tensor without({2, 3, 20, 24}, dense(), type);
        with.fill_normal(83);
        without.fill_normal(83);
        const rotary_options how{.dims = 16, .first_position = 12};
        const tables by = make_tables(32, 16, {});
        tilewise::rotary_embedding(with.view(), by.cosines.view(), by.sines.view(), how);
        tilewise::rotary_embedding(without.view(), how);
        CHECK(first_difference(with.view(), without.view()) == "");
    }
}

TEST_CASE("rotary: dot products depend on distances only") {
    for (const rotary_pairs pairs : {rotary_pairs::halves, rotary_pairs::interleaved}) {
        double first = 0;
        for (const count position : {0, 1, 1000, 1000000}) {
            const owned_tensor q({1, 1, 1, 64});
            const owned_tensor k({1, 1, 1, 64});
            q.fill_normal(84);
            k.fill_normal(85);
            tilewise::rotary_embedding(q.view(), {.pairs = pairs, .first_position = position + 37});
            tilewise::rotary_embedding(k.view(), {.pairs = pairs, .first_position = position});
            double dot = 0;
            for (count i = 0; i < 64; ++i) {
                dot += static_cast<double>(q.at(0, 0, 0, i)) * static_cast<double>(k.at(0, 0, 0, i));
            }
            if (position == 0) { first = dot; }
            CHECK(std::fabs(dot - first) < 3e-6);
        }
    }
}

TEST_CASE("rotary: short rows need no memory, and long ones have the same bits") {
    owned_tensor x({1, 2, 3, 512});
    x.fill_normal(1);
    owned_tensor longer({1, 2, 3, 1024});
    longer.fill_normal(2);
    const owned_tensor piece({1, 2, 3, 1024});
    for (count h = 0; h < 2; ++h) {
        for (count t = 0; t < 3; ++t) {
            for (count i = 0; i < 1024; ++i) { piece.at(0, h, t, i) = longer.at(0, h, t, i); }
        }
    }
    {
        const allocation_counter counter;
        tilewise::rotary_embedding(x.view(), {.first_position = 7});
        CHECK(counter.requests() == 0);
        tilewise::rotary_embedding(longer.view(), {.first_position = 7});
        CHECK(counter.requests() > 0);
    }
    const owned_tensor cosines({1, 1, 3, 512});
    const owned_tensor sines({1, 1, 3, 512});
    tilewise::rotary_tables(cosines.view(), sines.view(), {.first_position = 7});
    for (count h = 0; h < 2; ++h) {
        for (count t = 0; t < 3; ++t) {
            for (count i = 0; i < 512; ++i) {
                const float a = piece.at(0, h, t, i);
                const float b = piece.at(0, h, t, i + 512);
                const float c = cosines.at(0, 0, t, i);
                const float s = sines.at(0, 0, t, i);
                CHECK(longer.at(0, h, t, i) == a * c - b * s);
                CHECK(longer.at(0, h, t, i + 512) == b * c + a * s);
            }
        }
    }
}

TEST_CASE("rotary: NaN is of one kind, and stays in its pair") {
    const owned_tensor x({1, 1, 1, 8});
    x.fill([] { return 1.0F; });
    x.set(0, 0, 0, 1, -quiet_nan);
    tilewise::rotary_embedding(x.view(), {.first_position = 3});
    for (count i = 0; i < 8; ++i) {
        CHECK((bits_of(x.at(0, 0, 0, i)) == canonical_nan_bits) == (i == 1 || i == 5));
    }
}

TEST_CASE("rotary: wrong arguments are refused by name, and nothing is written") {
    const owned_tensor x({2, 3, 4, 10});
    const auto refuses_how = [&](const rotary_options& how, const std::vector<std::string>& parts) {
        check_refusal([&] { tilewise::rotary_embedding(x.view(), how); }, parts);
        CHECK(x.damage() == "");
    };
    refuses_how({.pairs = static_cast<rotary_pairs>(7)}, {"pairs: number 7"});
    refuses_how({.dims = 5}, {"dims: 5 given", "even"});
    refuses_how({.dims = 12}, {"dims: 12 given", "head_dim, 10"});
    refuses_how({.dims = -2}, {"dims: -2 given"});
    for (const double theta : {0.5, -1.0, 0x1p65, static_cast<double>(quiet_nan)}) {
        refuses_how({.theta = theta}, {"theta: ", "from 1 to 2^64"});
    }
    refuses_how({.first_position = (count{1} << 31) - 2}, {"first_position: 2147483646"});
    refuses_how({.first_position = std::numeric_limits<count>::min()}, {"first_position: ", "2^31"});
    refuses_how({.first_position = std::numeric_limits<count>::max()}, {"first_position: ", "2^31"});
    std::vector<count> positions(5);
    refuses_how({.positions = positions}, {"positions: 5 given", "4 tokens", "2"});
    positions.resize(12);
    refuses_how({.positions = positions}, {"positions: 12 given"});
    positions.resize(8);
    positions[7] = count{1} << 32;
    refuses_how({.positions = positions}, {"positions: position 4294967296"});
    tilewise::tensor changed = x.view();
    changed.type = tilewise::element_type::i8;
    check_refusal([&] { tilewise::rotary_embedding(changed); }, {"x: element type i8"});
    changed = x.view();
    changed.strides[1] = 0;
    check_refusal([&] { tilewise::rotary_embedding(changed); }, {"x: heads has stride 0"});
    changed.data = nullptr;
    check_refusal([&] { tilewise::rotary_embedding(changed); }, {"x: null data"});
    CHECK(x.damage() == "");
}

TEST_CASE("rotary: wrong tables are refused by name, and nothing is written") {
    const owned_tensor x({2, 3, 4, 10});
    const tables by = make_tables(6, 10, {});
    const auto refuses_tables = [&](const tilewise::const_tensor& cosines,
                                    const tilewise::const_tensor& sines, const rotary_options& how,
                                    const std::vector<std::string>& parts) {
        check_refusal([&] { tilewise::rotary_embedding(x.view(), cosines, sines, how); }, parts);
        CHECK(x.damage() == "");
    };
    const tilewise::const_tensor cosines = by.cosines.view();
    const tilewise::const_tensor sines = by.sines.view();
    refuses_tables(cosines, sines, {.dims = 8}, {"cosines: head_dim is 5, it must be 4"});
    refuses_tables(cosines, sines.slice(tilewise::axis::tokens, 0, 5), {}, {"sines: tokens is 5"});
    refuses_tables(cosines, sines.slice(tilewise::axis::head_dim, 0, 4), {}, {"sines: head_dim is 4"});
    refuses_tables(cosines, sines, {.first_position = -1}, {"first_position: position -1", "0 to 5"});
    refuses_tables(cosines, sines, {.first_position = 3}, {"first_position: 3", "5"});
    const std::vector<count> positions = {0, 1, 2, 6};
    refuses_tables(cosines, sines, {.positions = positions}, {"positions: position 6", "0 to 5"});
    tilewise::const_tensor changed = cosines;
    changed.type = tilewise::element_type::f16;
    refuses_tables(changed, sines, {}, {"cosines: element type f16"});
    changed = sines;
    changed.extents[1] = 2;
    refuses_tables(cosines, changed, {}, {"sines: batch 1 and heads 2"});
    const tables into{{{1, 1, 6, 5}}, {{1, 1, 6, 5}}};
    check_refusal([&] { tilewise::rotary_tables(into.cosines.view(), into.cosines.view()); },
                  {"sines: its memory overlaps that of cosines"});
    check_refusal([&] { tilewise::rotary_tables(into.cosines.view(), into.sines.view(), {.dims = 8}); },
                  {"dims: 8 given, it must be 10"});
    CHECK(into.cosines.damage() == "");
    CHECK(into.sines.damage() == "");
}

}  // namespace tilewise_tests

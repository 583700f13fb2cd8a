// tilewise explain: attention on an example small enough for paper, step by step. Weights and outputs are
// computed by the library, not written down here.

#include <CLI/CLI.hpp>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <tilewise/attention.hpp>

#include "commands.hpp"
#include "explain_tiles.hpp"
#include "input.hpp"

namespace tilewise::cli {
namespace {

const std::vector<pair> queries = {{1, 0}, {0, 1}};
const std::vector<pair> keys = {{1, 0}, {1, 1}};
const std::vector<pair> values = {{1, 2}, {3, 4}};
const std::vector<pair> identity = {{1, 0}, {0, 1}};
const float scale = 1.0F / std::sqrt(2.0F);

/// The library's attention on rows of two components.
std::vector<pair> attend(const std::vector<pair>& q, const std::vector<pair>& k, const std::vector<pair>& v,
                         causal mask) {
    const auto rows = [](const std::vector<pair>& of) {
        return bhsd(of.data()->data(), 1, 1, static_cast<std::int64_t>(of.size()), 2);
    };
    std::vector<pair> out(q.size());
    options how;
    how.scale = scale;
    how.causal = mask;
    attention(rows(q), rows(k), rows(v),
              bhsd(out.data()->data(), 1, 1, static_cast<std::int64_t>(q.size()), 2), how);
    return out;
}

float dot(const float* a, const float* b, std::size_t size) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < size; ++i) { sum += a[i] * b[i]; }
    return sum;
}

void print_heading(const char* text) { std::printf("\n%s\n%s\n\n", text, std::string(78, '-').c_str()); }

void print_matrix(const char* name, const std::vector<pair>& rows, int digits, const char* remark) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const float a = rows[i][0];
        const float b = rows[i][1];
        std::printf("  %-26s [%8.*f %8.*f ]%s%s\n", i == 0 ? name : "", digits, static_cast<double>(a),
                    digits, static_cast<double>(b), i == 0 && *remark != 0 ? "   " : "",
                    i == 0 ? remark : "");
    }
}

std::string bits_of(const pair& values_of) {
    char text[32];
    std::snprintf(text, sizeof text, "%08x %08x", std::bit_cast<std::uint32_t>(values_of[0]),
                  std::bit_cast<std::uint32_t>(values_of[1]));
    return text;
}

void explain_formula() {
    std::printf(
        "Attention answers each query with a mix of values. How much of each value goes\n"
        "into the mix depends on how well its key matches the query:\n\n"
        "    output = softmax(Q K^T / sqrt(d)) V\n");
    print_heading("1. Step by step: two queries, two keys, two values, d = 2");
    print_matrix("Q (one query per row)", queries, 0, "");
    print_matrix("K (one key per row)", keys, 0, "");
    print_matrix("V (one value per row)", values, 0, "");

    std::vector<pair> scores(2);
    std::vector<pair> scaled(2);
    for (std::size_t i = 0; i < 2; ++i) {
        for (std::size_t j = 0; j < 2; ++j) {
            scores[i][j] = dot(queries[i].data(), keys[j].data(), 2);
            scaled[i][j] = scores[i][j] * scale;
        }
    }
    std::printf("\n");
    print_matrix("scores  Q K^T", scores, 4, "row: query, column: key");
    print_matrix("scaled  / sqrt(2)", scaled, 4, "");
    print_matrix("weights softmax of rows", attend(queries, keys, identity, causal::none), 4,
                 "every row sums to 1");
    print_matrix("output  weights V", attend(queries, keys, values, causal::none), 4, "");
    std::printf(
        "\nQuery 1 matches both keys alike and gets the mean of the values. Query 2 matches\n"
        "key 2 better and gets two thirds of value 2.\n");
}

void explain_tiles() {
    print_heading("2. The same, tile by tile: no row of scores is ever stored");
    std::printf(
        "Softmax seems to need all scores of a row before it can weigh any: their\n"
        "maximum m (so that nothing overflows) and the sum l of the weights. The online\n"
        "softmax keeps both running: when a tile of keys raises m, the sums so far are\n"
        "scaled down to match. Query 2, with tiles of one key (the library's have 128):\n\n"
        "  tile   score    m   rescale by   weight      sum l    output so far o\n");
    const std::vector<tile_state> states = walk_tiles(queries[1], keys, values, scale);
    for (std::size_t j = 0; j < states.size(); ++j) {
        const tile_state& s = states[j];
        std::printf("  %4zu  %6.4f  %3.0f  %11s  %7.4f  %9.4f    %7.4f %7.4f\n", j + 1,
                    static_cast<double>(s.exponent), static_cast<double>(s.maximum),
                    j == 0 ? "-" : std::to_string(s.rescale).substr(0, 6).c_str(),
                    static_cast<double>(s.weight), static_cast<double>(s.sum),
                    static_cast<double>(s.output[0]), static_cast<double>(s.output[1]));
    }
    const tile_state& last = states.back();
    const pair tiled = {last.output[0] / last.sum, last.output[1] / last.sum};
    const pair whole = attend(queries, keys, values, causal::none)[1];
    std::printf("\n  output = o / l           %.4f %.4f  bits %s\n", static_cast<double>(tiled[0]),
                static_cast<double>(tiled[1]), bits_of(tiled).c_str());
    std::printf("  the library in one call  %.4f %.4f  bits %s  %s\n", static_cast<double>(whole[0]),
                static_cast<double>(whole[1]), bits_of(whole).c_str(),
                bits_of(tiled) == bits_of(whole) ? "the same bits" : "OTHER BITS");
    std::printf(
        "\nThe same bits: scores are taken as exponents of two (times log2 e) and m is an\n"
        "integer (rounded up), so rescaling multiplies by a power of two, which rounds\n"
        "nothing. When the maximum is found leaves no trace in the result.\n");
}

void explain_mask() {
    print_heading("3. The causal mask: no query sees a later key");
    print_matrix("weights, causal", attend(queries, keys, identity, causal::bottom_right), 4,
                 "query 1 sees key 1 only");
    print_matrix("output, causal", attend(queries, keys, values, causal::bottom_right), 4,
                 "row 1 is value 1 itself");
    std::printf(
        "\nA masked score must be minus infinity, since exp(-inf) = 0. A score of 0 is no\n"
        "mask: exp(0) = 1 is what a key gets that merely does not match. Query 1 with the\n"
        "score of key 2 set to 0:\n\n");
    // A key of zeros is one whose score is 0.
    const std::vector<pair> first_query = {queries[0]};
    const std::vector<pair> zeroed = {keys[0], {0, 0}};
    print_matrix("weights, masked with 0", attend(first_query, zeroed, identity, causal::none), 4,
                 "a third leaks");
    print_matrix("output, masked with 0", attend(first_query, zeroed, values, causal::none), 4,
                 "value 2 is in the mix");
}

/// Mean of the largest weight that a query gives to one of 64 random keys.
double largest_weight(std::int64_t d, float with_scale) {
    constexpr std::int64_t n_queries = 256;
    constexpr std::int64_t n_keys = 64;
    const std::vector<float> q = random_values(static_cast<std::size_t>(n_queries * d), 11);
    const std::vector<float> k = random_values(static_cast<std::size_t>(n_keys * d), 12);
    std::vector<float> unit(n_keys * n_keys);
    for (std::size_t i = 0; i < n_keys; ++i) { unit[i * n_keys + i] = 1.0F; }
    std::vector<float> weights(n_queries * n_keys);
    options how;
    how.scale = with_scale;
    attention(bhsd(q.data(), 1, 1, n_queries, d), bhsd(k.data(), 1, 1, n_keys, d),
              bhsd(unit.data(), 1, 1, n_keys, n_keys), bhsd(weights.data(), 1, 1, n_queries, n_keys), how);
    double total = 0;
    for (std::size_t i = 0; i < n_queries; ++i) {
        float largest = 0.0F;
        for (std::size_t j = 0; j < n_keys; ++j) { largest = std::fmax(largest, weights[i * n_keys + j]); }
        total += static_cast<double>(largest);
    }
    return total / n_queries;
}

/// The variance of the scores of random pairs of a query and a key.
double score_variance(std::size_t d, std::size_t pairs, double with_scale) {
    const std::vector<float> q = random_values(pairs * d, 13);
    const std::vector<float> k = random_values(pairs * d, 14);
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < pairs; ++i) {
        const double score = with_scale * static_cast<double>(dot(q.data() + i * d, k.data() + i * d, d));
        sum += score;
        squares += score * score;
    }
    const auto n = static_cast<double>(pairs);
    return (squares - sum * sum / n) / (n - 1);
}

void explain_scale() {
    constexpr std::size_t pairs = 20000;
    print_heading("4. Why scores are divided by sqrt(d)");
    std::printf(
        "A score is a sum of d products. If components have variance 1, the score's is d:\n"
        "the wider the head, the larger the scores. 20,000 random pairs of query and key:\n\n"
        "            variance of the score       largest of 64 weights, on average\n"
        "      d       raw    / sqrt(d)             raw    / sqrt(d)\n");
    for (const std::size_t d : {16U, 64U, 256U}) {
        const double factor = 1 / std::sqrt(static_cast<double>(d));
        const auto width = static_cast<std::int64_t>(d);
        std::printf("  %5zu  %8.2f  %10.3f          %6.3f  %10.3f\n", d, score_variance(d, pairs, 1),
                    score_variance(d, pairs, factor), largest_weight(width, 1.0F),
                    largest_weight(width, static_cast<float>(factor)));
    }
    std::printf(
        "\nWithout the division the softmax saturates: one key takes nearly all the weight,\n"
        "the others next to none, and a model learns nothing from them. With it, weights\n"
        "are spread alike for every d. (Equal weights would be 1/64 = 0.016.)\n");
}

void explain(const std::string& isa_given) {
    choose_isa(isa_given);
    explain_formula();
    explain_tiles();
    explain_mask();
    explain_scale();
    std::fflush(stdout);
}

}  // namespace

void add_explain(CLI::App& app) {
    const auto isa_given = std::make_shared<std::string>();
    CLI::App* command =
        app.add_subcommand("explain", "How tiled attention works, on an example small enough for paper");
    add_isa_option(*command, *isa_given);
    command->callback([isa_given] { explain(*isa_given); });
}

}  // namespace tilewise::cli

// tilewise accuracy: the error of every storage type and arithmetic against float64, on real input.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <tilewise/attention.hpp>

#include "commands.hpp"
#include "errors.hpp"
#include "machine.hpp"
#include "parallel.hpp"
#include "progress.hpp"
#include "reference_elements.hpp"
#include "stored.hpp"
#include "stored_input.hpp"
#include "text.hpp"
#include "textbook.hpp"

namespace tilewise::cli {
namespace {

using arithmetics = std::vector<arithmetic>;

/// A storage of q, k and v, and how results are computed from it.
struct storage_row {
    storage stored;
    std::vector<element_type> out_types;
    arithmetics computed = {arithmetic::exact};
};

std::vector<storage_row> all_rows() {
    using enum element_type;
    std::vector<storage_row> rows = {{{f32, f32}, {f32}},
                                     {{f16, f16}, {f32, f16}},
                                     {{bf16, bf16}, {f32, bf16}, {arithmetic::exact, arithmetic::fastest}},
                                     {{f32, i8, scales_per::token}, {f32}},
                                     {{f32, i8, scales_per::channel}, {f32}}};
    for (const element_type type : {q8_0, q4_0, e4m3, e5m2}) { rows.push_back({{f32, type}, {f32}}); }
#ifdef TILEWISE_HAVE_F64
    rows.push_back({{f64, f64}, {f64}});
#endif
    return rows;
}

template <class Real>
struct layer_results {
    std::vector<Real> out;  ///< [heads, tokens, head_dim]
    std::vector<Real> lse;  ///< [heads, tokens]

    explicit layer_results(const input_spec& s)
        : out(static_cast<std::size_t>(s.heads * s.tokens * s.head_dim)),
          lse(static_cast<std::size_t>(s.heads * s.tokens)) {}
};

/// Causal, as the model is.
template <class Real>
layer_results<Real> textbook(const input& from, int threads) {
    const input_spec& s = from.spec;
    layer_results<Real> made(s);
    for_each_index(s.heads * s.tokens, threads, [&](std::int64_t row) {
        const std::int64_t token = row % s.tokens;
        const textbook_row<Real> one = compute_textbook_row<Real>(from, row / s.tokens, token, token + 1);
        std::copy(one.out.begin(), one.out.end(), made.out.begin() + row * s.head_dim);
        made.lse[static_cast<std::size_t>(row)] = one.lse;
    });
    return made;
}

/// How the library computes one result.
struct method {
    element_type out;
    tilewise::arithmetic arithmetic;
    int threads;
};

/// Where the instruction set does not have that arithmetic, `how` is changed to what it has.
template <class Real>
layer_results<Real> compute(const stored_input& from, method& how) {
    const input_spec& s = from.worth.spec;
    layer_results<Real> made(s);
    const element_type real = how.out == element_type::f64 ? element_type::f64 : element_type::f32;
    std::vector<double> out_memory(made.out.size());
    std::vector<double> lse_memory(made.lse.size());
    tensor out = bhsd(out_memory.data(), 1, s.heads, s.tokens, s.head_dim);
    tensor lse = row_values(lse_memory.data(), 1, s.heads, s.tokens);
    out.type = how.out;
    lse.type = real;
    const options chosen = {
        .causal = causal::bottom_right, .lse = lse, .threads = how.threads, .arithmetic = how.arithmetic};
    how.arithmetic = plan_attention(from.q.view, from.k.view, from.v.view, out, chosen).arithmetic;
    attention(from.q.view, from.k.view, from.v.view, out, chosen);
    for (std::size_t n = 0; n < made.out.size(); ++n) {
        made.out[n] = reference::read_real<Real>(out.data, out.type, static_cast<std::int64_t>(n));
    }
    for (std::size_t n = 0; n < made.lse.size(); ++n) {
        made.lse[n] = reference::read_real<Real>(lse.data, lse.type, static_cast<std::int64_t>(n));
    }
    return made;
}

/// Cells of the table: the root mean square and the largest of the output's errors, relative to the root mean
/// square of the output; the largest of lse's.
template <class Real>
std::vector<std::string> show_difference(const layer_results<Real>& got, const layer_results<Real>& want) {
    Real size = 0;
    Real sum = 0;
    Real largest = 0;
    for (std::size_t n = 0; n < want.out.size(); ++n) {
        const Real difference = std::fabs(got.out[n] - want.out[n]);
        size += want.out[n] * want.out[n];
        sum += difference * difference;
        largest = std::max(largest, difference);
    }
    Real of_lse = 0;
    for (std::size_t n = 0; n < want.lse.size(); ++n) {
        of_lse = std::max(of_lse, std::fabs(got.lse[n] - want.lse[n]));
    }
    const Real unit = std::sqrt(size / static_cast<Real>(want.out.size()));
    const Real mean = std::sqrt(sum / static_cast<Real>(want.out.size()));
    return {format_scientific(static_cast<double>(mean / unit)),
            format_scientific(static_cast<double>(largest / unit)),
            format_scientific(static_cast<double>(of_lse))};
}

/// One line for each way to compute.
template <class Real>
void add_errors(table& lines, const storage_row& row, const stored_input& from,
                const layer_results<Real>& want, int threads) {
    for (const element_type out : row.out_types) {
        for (const arithmetic asked_for : row.computed) {
            method how{out, asked_for, threads};
            const layer_results<Real> got = compute<Real>(from, how);
            if (how.arithmetic != asked_for) { continue; }
            std::vector<std::string> cells = {name_of(row.stored), measure::name_of(out), name_of(asked_for)};
            const std::vector<std::string> errors = show_difference(got, want);
            cells.insert(cells.end(), errors.begin(), errors.end());
            lines.add(cells);
        }
    }
}

void print_layer(const input& from, int threads) {
    if (from.spec.head_dim % 32 != 0) {
        throw run_error("--data: head_dim is " + std::to_string(from.spec.head_dim) +
                        ", and q8_0 and q4_0 have blocks of 32");
    }
    progress_line progress;
    const layer_results<double> before = textbook<double>(from, threads);
    table errors("lllrrr");
    errors.add({"stored as", "out", "arithmetic", "mean square", "largest", "of lse"});
    errors.add_line();
    table changes("lrrr");
    changes.add({"stored as", "mean square", "largest", "of lse"});
    changes.add_line();
    for (const storage_row& row : all_rows()) {
        progress.show(from.spec.name() + ": " + name_of(row.stored));
        const stored_input stored(from, row.stored);
        const layer_results<double> after =
            stored.is_exact(from) ? before : textbook<double>(stored.worth, threads);
        if (row.stored.q == element_type::f64) {
            add_errors(errors, row, stored, textbook<long double>(stored.worth, threads), threads);
        } else {
            add_errors(errors, row, stored, after, threads);
        }
        std::vector<std::string> cells = show_difference(after, before);
        cells.insert(cells.begin(), name_of(row.stored));
        changes.add(cells);
    }
    progress.clear();
    std::cout << from.spec.name() << ", " << format_count(from.spec.tokens) << " tokens, causal\n\n"
              << "Error against float64 on what is stored:\n\n";
    errors.print(std::cout);
    std::cout << "\nWhat storing changed, both in float64:\n\n";
    changes.print(std::cout);
    std::cout << '\n';
}

struct accuracy_options {
    std::string data = TILEWISE_DATA_DIRECTORY;
    std::string isa;
    int threads = 0;
};

void print_accuracy(const accuracy_options& given) {
    choose_isa(given.isa);
    const int threads = given.threads == 0 ? measure::default_threads() : given.threads;
    for (const char* layer : {"early", "late"}) {
        print_layer(make_input({layer, given.data, 0, 0, 0, 0}), threads);
    }
    std::cout
        << "Root mean square and largest error of the output, relative to its root mean square; largest\n"
           "error of lse. float64 is the textbook's formula (for f64: in long double).\n";
}

}  // namespace

void add_accuracy(CLI::App& app) {
    const auto given = std::make_shared<accuracy_options>();
    CLI::App* command =
        app.add_subcommand("accuracy", "The error against float64, by storage type and arithmetic");
    command->footer("On two layers of a real model; it takes half a minute or more.");
    command->add_option("--data", given->data, "Directory of the real input")->capture_default_str();
    add_threads_option(*command, given->threads);
    add_isa_option(*command, given->isa);
    command->callback([given] { print_accuracy(*given); });
}

}  // namespace tilewise::cli

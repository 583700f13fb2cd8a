// tilewise compare: tiled against naive, on real input and on random sequences.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clock.hpp"
#include "commands.hpp"
#include "comparison.hpp"
#include "errors.hpp"
#include "fma_peak.hpp"
#include "machine.hpp"
#include "output_file.hpp"
#include "plot.hpp"
#include "progress.hpp"
#include "read_bandwidth.hpp"
#include "report.hpp"
#include "text.hpp"

namespace tilewise::cli {
namespace {

struct compare_options {
    std::string tokens = "1k,4k,16k";
    std::int64_t heads = 9;
    std::int64_t kv_heads = 3;
    std::int64_t head_dim = 64;
    bool causal = false;
    int threads = 0;
    std::string isa;
    std::string naive = "auto";
    std::string data = TILEWISE_DATA_DIRECTORY;
    std::string json;
    std::string plot;
    std::uint64_t memory = 0;
    double seconds = 1;
    double budget = 0;
    bool demo = false;  ///< no option that describes an input was given
};

/// One row to measure.
struct task {
    input_spec spec;
    bool causal = false;
};

std::vector<task> tasks_of(const compare_options& given) {
    std::vector<task> tasks;
    for (const char* layer : {"early", "late"}) {
        const input_spec spec{layer, given.data, 0, 0, 0, 0};
        if (given.demo && has_real_input(spec)) { tasks.push_back({make_input(spec).spec, true}); }
    }
    if (given.demo && tasks.empty()) {
        std::cout << "No real input: its files are not in '" << given.data << "' (see --data).\n\n";
    }
    for (const std::int64_t tokens : parse_lengths("--tokens", given.tokens)) {
        tasks.push_back(
            {{"", {}, tokens, given.heads, given.kv_heads, given.head_dim}, given.causal || given.demo});
    }
    return tasks;
}

measure::naive_products products_of(const compare_options& given, isa which) {
    if (given.naive == "loops") { return measure::naive_products::loops; }
    if (given.naive == "openblas") {
        if (!measure::has_openblas()) { throw usage_error("--naive: openblas given; this build has none"); }
        return measure::naive_products::openblas;
    }
    return measure::faster_naive_products(which, given.head_dim);
}

/// Foretells how long a row takes from the rows before it, so that a time budget can be kept.
class forecast {
public:
    forecast(double budget, double peak_gflops, int threads)
        : budget_(budget), seconds_per_gflop_(3 / (peak_gflops * threads)) {}

    [[nodiscard]] bool allows(const task& next) const {
        // Each formulation runs at least twice: for the time, and for the memory.
        return budget_ <= 0 || all_.elapsed().wall + 2.5 * work(next.spec) * seconds_per_gflop_ < budget_;
    }

    void learn(const comparison_row& row) {
        const double both = row.tiled.wall_seconds + (row.naive ? row.naive->wall_seconds : 0);
        seconds_per_gflop_ = both / work(row.spec);
    }

private:
    static double work(const input_spec& spec) {
        return 4e-9 * static_cast<double>(spec.heads * spec.head_dim) * static_cast<double>(spec.tokens) *
               static_cast<double>(spec.tokens);
    }

    measure::stopwatch all_{1};
    double budget_;
    double seconds_per_gflop_;  ///< of both formulations, by all scores
};

std::vector<comparison_row> measure_all(const std::vector<task>& tasks, const compare_options& given,
                                        comparison_settings& settings, forecast& expected,
                                        progress_line& progress) {
    std::vector<comparison_row> rows;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        const task& next = tasks[i];
        const std::string name = next.spec.name() + " " + format_count(next.spec.tokens) + " tokens";
        std::string obstacle;
        if (!rows.empty() && !expected.allows(next)) {
            obstacle = "would not fit into " + format_seconds(given.budget) + " in all (see --budget)";
        }
        // The input, both outputs, and the input once more in the process whose memory is measured.
        if (2.5 * next.spec.bytes() > static_cast<double>(usable_memory(settings))) {
            obstacle = "does not fit into memory, not even its input and output";
        }
        if (!obstacle.empty()) {
            progress.clear();
            std::cout << "Left out: " << name << ": it " << obstacle << ".\n";
            continue;
        }
        settings.causal = next.causal;
        settings.progress = [&, i](const std::string& step) {
            progress.show("[" + std::to_string(i + 1) + "/" + std::to_string(tasks.size()) + "] " + name +
                          ": " + step);
        };
        rows.push_back(measure_row(next.spec, settings));
        expected.learn(rows.back());
    }
    progress.clear();
    if (rows.empty()) { throw run_error("nothing is left to compare"); }
    return rows;
}

void check_options(const compare_options& given) {
    if (given.heads % given.kv_heads != 0) {
        throw usage_error("--heads: " + std::to_string(given.heads) + " given with --kv-heads " +
                          std::to_string(given.kv_heads) + "; it must be a multiple of it");
    }
    if (!given.plot.empty()) { require_plot_format(given.plot); }
}

comparison_settings settings_of(const compare_options& given, const std::string& program) {
    comparison_settings settings;
    settings.threads = given.threads;
    settings.isa = choose_isa(given.isa);
    settings.products = products_of(given, settings.isa);
    settings.memory = static_cast<std::size_t>(given.memory);
    settings.seconds = given.seconds;
    settings.program = program;
    return settings;
}

machine_facts measure_machine(const comparison_settings& settings) {
    const int threads = settings.threads == 0 ? measure::default_threads() : settings.threads;
    return {measure::cpu_name(),
            std::string(isa_name(settings.isa)),
            threads,
            measure::fma_peak_gflops(settings.isa),
            measure::read_bandwidth_gbps(settings.isa, threads),
            measure::naive_products_name(settings.products, settings.isa)};
}

/// The plot's file; none, with a note, if the demonstration has to do without.
std::unique_ptr<output_file> open_plot(const compare_options& given) {
    try {
        if (!can_plot()) { throw run_error("--plot: " + no_plotter_message()); }
        return std::make_unique<output_file>("--plot", given.plot);
    } catch (const run_error& error) {
        if (!given.demo) { throw; }
        std::cout << "There will be no plot. " << error.what() << ".\n\n";
        return nullptr;
    }
}

void compare(const compare_options& given, const std::string& program) {
    check_options(given);
    comparison_settings settings = settings_of(given, program);
    std::optional<output_file> json;
    std::unique_ptr<output_file> picture;
    if (!given.json.empty()) { json.emplace("--json", given.json); }
    if (!given.plot.empty()) { picture = open_plot(given); }

    progress_line progress;
    progress.show("measuring the machine");
    machine_facts machine = measure_machine(settings);
    forecast expected(given.budget, machine.fma_peak_gflops, machine.threads);
    const std::vector<comparison_row> rows =
        measure_all(tasks_of(given), given, settings, expected, progress);
    for (const comparison_row& row : rows) {
        machine.fma_peak_gflops = std::max(machine.fma_peak_gflops, row.fma_peak_gflops);
    }
    print_machine(std::cout, machine);
    std::cout << '\n';
    print_table(std::cout, rows);
    print_explanation(std::cout, rows);
    if (json) {
        json->write(to_json(machine, rows));
        json->commit();
        std::cout << "\nJSON: " << std::filesystem::absolute(given.json).string() << '\n';
    }
    if (picture) {
        plot(*picture, rows);
        std::cout << "\nPlot of time and memory: " << std::filesystem::absolute(given.plot).string() << '\n';
    }
}

}  // namespace

void add_compare(CLI::App& app, const std::string& program) {
    const auto given = std::make_shared<compare_options>();
    CLI::App* command = app.add_subcommand("compare", "Tiled against naive: time, memory, error and bits");
    command->footer(
        "Without --tokens, --heads, --kv-heads, --head-dim and --causal it is a demonstration of about a "
        "minute:\n"
        "two layers of a real model, then random sequences, all causal, and a plot.");
    const std::vector<CLI::Option*> shape = {
        command->add_option("--tokens", given->tokens, "Lengths, such as 1k,4k,16k (k is 1024)")
            ->capture_default_str(),
        command->add_option("--heads", given->heads, "Query heads")
            ->check(CLI::Range(1, 4096))
            ->capture_default_str(),
        command->add_option("--kv-heads", given->kv_heads, "Key heads, a divisor of --heads")
            ->check(CLI::Range(1, 4096))
            ->capture_default_str(),
        command->add_option("--head-dim", given->head_dim, "Components of a head")
            ->check(CLI::Range(1, 65536))
            ->capture_default_str(),
        command->add_flag("--causal", given->causal, "Each token sees itself and those before it")};
    add_threads_option(*command, given->threads);
    add_isa_option(*command, given->isa);
    command->add_option("--naive", given->naive, "What multiplies matrices in the naive formulation")
        ->check(CLI::IsMember({"auto", "openblas", "loops"}))
        ->capture_default_str();
    command->add_option("--data", given->data, "Directory of the real input")->capture_default_str();
    command->add_option("--json", given->json, "Write the results to this file");
    command->add_option("--plot", given->plot,
                        "Draw time and memory into this .svg or .png file (needs gnuplot)");
    command
        ->add_option("--memory", given->memory,
                     "Memory that a row may use, such as 500m or 2g: naive is skipped where it needs more")
        ->transform(CLI::AsSizeValue(false));
    command->add_option("--seconds", given->seconds, "How long to repeat the timings of one row")
        ->check(CLI::Range(0.0, 3600.0))
        ->capture_default_str();
    command
        ->add_option("--budget", given->budget,
                     "Seconds for everything: rows that would not fit are left out; 0 for no limit")
        ->check(CLI::Range(0.0, 1e6));
    command->callback([given, shape, program] {
        given->demo =
            std::all_of(shape.begin(), shape.end(), [](const CLI::Option* o) { return o->count() == 0; });
        if (given->demo && given->budget == 0) { given->budget = 75; }
        if (given->demo && given->plot.empty()) { given->plot = "tilewise-compare.svg"; }
        compare(*given, program);
    });
}

}  // namespace tilewise::cli

#include "report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

#include <nlohmann/json.hpp>

#include "clock.hpp"
#include "text.hpp"

namespace tilewise::cli {
namespace {

std::string memory_text(const std::optional<std::size_t>& bytes) {
    return bytes ? format_bytes(*bytes) : "?";
}

/// "2.4x" or "1,024x".
std::string times(double ratio) {
    return (ratio < 9.95 ? format_fixed(ratio, 1) : format_count(std::llround(ratio))) + "x";
}

std::vector<std::string> cells_of(const side& s) {
    return {format_seconds(s.wall_seconds),
            format_seconds(s.cpu_seconds),
            format_fixed(s.gflops, 1),
            format_percent(s.fraction_of_peak),
            format_bytes(s.scratch_bytes),
            memory_text(s.peak_rss_bytes),
            format_scientific(s.max_abs_difference_float64)};
}

std::string heads_text(const input_spec& spec) {
    return std::to_string(spec.heads) + (spec.heads == 1 ? " query head, " : " query heads, ") +
           std::to_string(spec.kv_heads) + (spec.kv_heads == 1 ? " key head" : " key heads") +
           ", head dimension " + std::to_string(spec.head_dim);
}

void add_tiled(table& to, const comparison_row& row) {
    std::vector<std::string> line = {row.spec.name(), format_count(row.spec.tokens), "tiled"};
    for (std::string& cell : cells_of(row.tiled)) { line.push_back(std::move(cell)); }
    line.emplace_back(row.bits_equal ? "yes" : "NO");
    to.add(std::move(line));
}

void add_naive(table& to, const comparison_row& row) {
    const std::string mask = row.causal ? "causal" : "no mask";
    if (!row.naive) {
        to.add_with_remark({mask, "", "naive"},
                           "skipped: it would need " + format_bytes(row.naive_needs_bytes) +
                               " beside input and output, of " + format_bytes(row.available_bytes));
        return;
    }
    std::vector<std::string> line = {mask, "", "naive"};
    for (std::string& cell : cells_of(*row.naive)) { line.push_back(std::move(cell)); }
    to.add(std::move(line));

    const auto ratio = [](std::size_t a, std::size_t b) {
        return static_cast<double>(a) / static_cast<double>(b);
    };
    std::string resident;
    if (row.naive->peak_rss_bytes && row.tiled.peak_rss_bytes) {
        resident = times(ratio(*row.naive->peak_rss_bytes, *row.tiled.peak_rss_bytes));
    }
    to.add({"", "", "ratio", times(row.naive->wall_seconds / row.tiled.wall_seconds),
            times(row.naive->cpu_seconds / row.tiled.cpu_seconds), "", "",
            times(ratio(row.naive->scratch_bytes, row.tiled.scratch_bytes)), resident});
}

std::string hexadecimal(std::uint64_t value) {
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
    return text.data();
}

std::string fingerprints(const std::vector<comparison_row>& rows) {
    std::string text;
    for (const comparison_row& row : rows) {
        text += "\n  " + hexadecimal(row.fingerprint) + "  " + row.spec.name() + ", " +
                format_count(row.spec.tokens) + (row.causal ? " tokens, causal" : " tokens, no mask");
    }
    return text;
}

nlohmann::ordered_json number_or_null(const std::optional<std::size_t>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

void add_side(nlohmann::ordered_json& to, const std::string& name, const std::optional<side>& s) {
    const auto put = [&](const char* field, const nlohmann::ordered_json& value) {
        to[name + field] = s ? value : nlohmann::ordered_json(nullptr);
    };
    const side none;
    const side& values = s ? *s : none;
    put("_cpu_seconds", values.cpu_seconds);
    put("_wall_seconds", values.wall_seconds);
    put("_gflops", values.gflops);
    put("_fraction_of_peak", values.fraction_of_peak);
    put("_scratch_bytes", values.scratch_bytes);
    put("_peak_rss_bytes", number_or_null(values.peak_rss_bytes));
    put("_median_cpu_seconds", values.median_cpu_seconds);
}

nlohmann::ordered_json row_json(const comparison_row& row) {
    nlohmann::ordered_json json;
    json["input"] = row.spec.is_real() ? "real" : "random";
    json["layer"] =
        row.spec.is_real() ? nlohmann::ordered_json(row.spec.layer) : nlohmann::ordered_json(nullptr);
    json["tokens"] = row.spec.tokens;
    json["heads"] = row.spec.heads;
    json["kv_heads"] = row.spec.kv_heads;
    json["head_dim"] = row.spec.head_dim;
    json["causal"] = row.causal;
    json["threads"] = row.threads;
    json["isa"] = isa_name(row.isa);
    add_side(json, "tiled", row.tiled);
    add_side(json, "naive", row.naive);
    json["naive_needs_bytes"] = row.naive_needs_bytes;
    json["bits_equal"] = row.bits_equal;
    json["max_abs_difference_float64"] = row.tiled.max_abs_difference_float64;
    json["naive_max_abs_difference_float64"] =
        row.naive ? nlohmann::ordered_json(row.naive->max_abs_difference_float64)
                  : nlohmann::ordered_json(nullptr);
    json["tokens_checked"] = row.tokens_checked;
    json["output_fingerprint"] = hexadecimal(row.fingerprint);
    json["fma_peak_gflops"] = row.fma_peak_gflops;
    json["fma_peak_spread"] = row.fma_peak_spread;
    json["repeats"] = row.repeats;
    return json;
}

}  // namespace

void print_machine(std::ostream& out, const machine_facts& machine) {
    out << "Machine:  " << machine.cpu << ", " << machine.threads
        << (machine.threads == 1 ? " thread" : " threads") << ", kernels for " << machine.isa << '\n'
        << "          FMA peak " << format_fixed(machine.fma_peak_gflops, 1)
        << " GFLOP/s per core, memory read at " << format_fixed(machine.read_gbps, 1) << " GB/s\n"
        << "Naive:    three steps with the whole score matrix of a head in memory;\n"
        << "          products by " << machine.naive_products << '\n';
}

void print_table(std::ostream& out, const std::vector<comparison_row>& rows) {
    table t("lrlrrrrrrrr");
    t.add({"", "", "", "", "", "", "of FMA", "", "peak", "error to", "same"});
    t.add({"input", "tokens", "", "time", "CPU", "GFLOP/s", "peak", "scratch", "memory", "float64", "bits"});
    std::string heads;
    for (const comparison_row& row : rows) {
        t.add_line();
        if (heads != heads_text(row.spec)) {
            heads = heads_text(row.spec);
            t.add_with_remark({}, heads);
        }
        add_tiled(t, row);
        add_naive(t, row);
    }
    t.print(out);
}

void print_explanation(std::ostream& out, const std::vector<comparison_row>& rows) {
    const bool causal =
        std::any_of(rows.begin(), rows.end(), [](const comparison_row& r) { return r.causal; });
    std::int64_t fewest = rows.front().tokens_checked;
    int threads = 1;
    double spread = 0;
    for (const comparison_row& row : rows) {
        fewest = std::min(fewest, row.tokens_checked);
        threads = std::max(threads, row.threads);
        spread = std::max(spread, row.fma_peak_spread);
    }
    out << "\nHow to read it. Both formulations compute the same attention"
        << (causal ? "; each token sees itself and those\nbefore it (causal)" : "")
        << ". 'ratio' is naive / tiled.\n"
        << "  time, CPU    best of the repeats; CPU is the " << measure::cpu_clock_name(threads) << ".\n"
        << "  GFLOP/s      useful work only (no masked score counts) per second of CPU time, all threads\n"
           "               together; 'of FMA peak' is its share of what the cores can do at most.\n"
        << (causal
                ? "               Naive computes all scores and then masks half of them, as is usual; tiled\n"
                  "               skips those: a factor of two of the ratio.\n"
                : "")
        << "  scratch      what the call allocates. Naive holds a tokens x tokens matrix, which grows with\n"
           "               the square of the length; tiled has a few hundred KiB per thread at any length.\n"
           "  peak memory  of a process that does nothing else: program, input, output and scratch.\n"
           "  same bits    the tiled result is compared with the scalar oracle by ==, on at least\n"
           "               "
        << format_count(fewest) << " query tokens of every row.\n";
    out << "\nFingerprints of the tiled outputs, the same on every machine, for every instruction set and "
           "any\n"
           "number of threads:"
        << fingerprints(rows) << '\n';
    if (spread > 0.1) {
        out << "\nNote: the FMA peak itself varied by " << format_percent(spread)
            << " while this was measured: the machine is shared or\n"
               "changes its clock rate, and times may be off by as much.\n";
    }
}

std::string to_json(const machine_facts& machine, const std::vector<comparison_row>& rows) {
    nlohmann::ordered_json json;
    json["machine"] = {{"cpu", machine.cpu},
                       {"isa", machine.isa},
                       {"threads", machine.threads},
                       {"fma_peak_gflops", machine.fma_peak_gflops},
                       {"read_gbps", machine.read_gbps},
                       {"naive_products", machine.naive_products}};
    json["rows"] = nlohmann::ordered_json::array();
    for (const comparison_row& row : rows) { json["rows"].push_back(row_json(row)); }
    return json.dump(2) + "\n";
}

}  // namespace tilewise::cli

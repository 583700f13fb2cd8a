#include "plot.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "child_process.hpp"
#include "errors.hpp"
#include "text.hpp"

namespace tilewise::cli {
namespace {

using value_of_row = std::function<double(const comparison_row&)>;

/// One line of the picture: the rows of random input in order of length, or the single points of real input.
struct series {
    std::string title;
    std::string style;
    std::string data;
};

std::string points(const std::vector<comparison_row>& rows, bool real, const value_of_row& value) {
    std::multimap<std::int64_t, double> sorted;
    for (const comparison_row& row : rows) {
        if (row.spec.is_real() != real || row.causal != rows.back().causal) { continue; }
        const double y = value(row);
        if (y > 0) { sorted.emplace(row.spec.tokens, y); }
    }
    std::ostringstream text;
    for (const auto& [tokens, y] : sorted) { text << tokens << ' ' << y << '\n'; }
    return text.str();
}

/// Tiled and naive, random and real, of one quantity.
std::vector<series> series_of(const std::vector<comparison_row>& rows, const value_of_row& tiled,
                              const value_of_row& naive) {
    std::vector<series> all;
    const auto add = [&](const char* name, const char* color, const value_of_row& value) {
        const std::string paint = std::string(" lc rgb '") + color + "'";
        all.push_back({name, "with linespoints lw 2 pt 7 ps 0.6" + paint, points(rows, false, value)});
        all.push_back({std::string(name) + ", real input", "with points pt 6 ps 1.3 lw 2" + paint,
                       points(rows, true, value)});
    };
    add("naive", "#d95f02", naive);
    add("tiled", "#1b6ca8", tiled);
    std::erase_if(all, [](const series& s) { return s.data.empty(); });
    return all;
}

double largest_of(const std::vector<series>& all) {
    double largest = 0;
    for (const series& s : all) {
        std::istringstream data(s.data);
        for (double x = 0, y = 0; data >> x >> y;) { largest = std::max(largest, y); }
    }
    return largest;
}

void write_panel(std::ostream& script, const std::string& title, const std::string& unit,
                 const std::vector<series>& all) {
    if (all.empty()) { return; }
    // With room for the legend above the lines.
    script << "set title '" << title << "'\nset ylabel '" << unit
           << "'\nset yrange [*:" << 50 * largest_of(all) << "]\n";
    for (std::size_t i = 0; i < all.size(); ++i) {
        script << "$data" << i << " << EOD\n" << all[i].data << "EOD\n";
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        script << (i == 0 ? "plot " : ", ") << "$data" << i << " using 1:2 " << all[i].style << " title '"
               << all[i].title << "'";
    }
    script << '\n';
}

/// Tick marks at the lengths themselves.
std::string token_ticks(const std::vector<comparison_row>& rows) {
    std::map<std::int64_t, std::string> ticks;
    for (const comparison_row& row : rows) {
        const std::int64_t tokens = row.spec.tokens;
        ticks[tokens] = tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "k" : std::to_string(tokens);
    }
    std::string text;
    for (const auto& [tokens, label] : ticks) {
        text += (text.empty() ? "'" : ", '") + label + "' " + std::to_string(tokens);
    }
    return text;
}

/// In gnuplot's single quotes a quote is written twice.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) { result += c == '\'' ? std::string("''") : std::string(1, c); }
    return result + "'";
}

/// Wall times, and the limit of tiled.
std::vector<series> times_of(const std::vector<comparison_row>& rows) {
    std::vector<series> times = series_of(
        rows, [](const comparison_row& r) { return r.tiled.wall_seconds; },
        [](const comparison_row& r) { return r.naive ? r.naive->wall_seconds : 0; });
    times.push_back({"limit: multiply-add peak", "with lines lw 2 dt 2 lc rgb '#444444'",
                     points(rows, false, [](const comparison_row& r) {
                         return 1e-9 * r.flops / (r.fma_peak_gflops * r.threads);
                     })});
    std::erase_if(times, [](const series& s) { return s.data.empty(); });
    return times;
}

std::string script_for(const std::filesystem::path& path, const std::vector<comparison_row>& rows) {
    std::ostringstream script;
    const bool png = path.extension() == ".png";
    const input_spec& shape = rows.back().spec;
    double shortest = static_cast<double>(shape.tokens);
    double longest = shortest;
    for (const comparison_row& row : rows) {
        shortest = std::min(shortest, static_cast<double>(row.spec.tokens));
        longest = std::max(longest, static_cast<double>(row.spec.tokens));
    }
    // As wide as a README shows it.
    script << (png ? "set terminal pngcairo size 900,430 font 'sans,11'\n"
                   : "set terminal svg size 900,430 font 'sans,14' background rgb 'white'\n")
           << "set output " << quoted(path.string()) << "\nset multiplot layout 1,2 title 'Attention with "
           << shape.heads << " query heads, " << shape.kv_heads << " key heads, head dimension "
           << shape.head_dim << (rows.back().causal ? ", causal" : "") << ", " << rows.back().threads
           << (rows.back().threads == 1 ? " thread" : " threads") << "'\n"
           << "set logscale x 2\nset logscale y 10\nset grid ytics lt 1 lc rgb '#dddddd'\nset key top left "
              "reverse Left\n"
           << "set xlabel 'tokens'\nset xtics (" << token_ticks(rows) << ")\nset xrange [" << 0.8 * shortest
           << ":" << 1.25 * longest << "]\n";
    write_panel(script, "Time of one call", "wall time, s", times_of(rows));
    const auto mebibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    write_panel(script, "Scratch memory of one call", "memory, MiB",
                series_of(
                    rows, [&](const comparison_row& r) { return mebibytes(r.tiled.scratch_bytes); },
                    [&](const comparison_row& r) { return mebibytes(r.naive_needs_bytes); }));
    script << "unset multiplot\n";
    return script.str();
}

}  // namespace

void require_plot_format(const std::filesystem::path& path) {
    if (path.extension() != ".svg" && path.extension() != ".png") {
        throw usage_error("--plot: '" + path.string() + "' given; the name must end in .svg or .png");
    }
}

bool can_plot() { return measure::run_child("gnuplot", {"--version"}).exit_code == 0; }

std::string no_plotter_message() {
    return "gnuplot is not installed, so no plot is drawn (on Debian and Ubuntu it is in the package "
           "gnuplot-nox)";
}

void plot(output_file& picture, const std::vector<comparison_row>& rows) {
    std::filesystem::path script = picture.temporary();
    script.replace_extension(".gnuplot");
    output_file commands("--plot", script);
    commands.write(script_for(picture.temporary(), rows));
    commands.commit();
    const measure::child_result drawn = measure::run_child("gnuplot", {script.string()}, true);
    std::error_code failed;
    std::filesystem::remove(script, failed);
    if (drawn.exit_code != 0) { throw run_error("gnuplot failed: " + drawn.output); }
    if (std::filesystem::file_size(picture.temporary(), failed) == 0 || failed) {
        throw run_error("gnuplot drew nothing: " + drawn.output);
    }
    picture.commit();
}

}  // namespace tilewise::cli

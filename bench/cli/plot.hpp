// The comparison as a picture, drawn by gnuplot.

#ifndef TILEWISE_CLI_PLOT_HPP
#define TILEWISE_CLI_PLOT_HPP

#include <filesystem>
#include <string>
#include <vector>

#include "comparison.hpp"
#include "output_file.hpp"

namespace tilewise::cli {

/// Throws usage_error unless the path ends in .svg or .png.
void require_plot_format(const std::filesystem::path& path);

/// Whether gnuplot can be run.
[[nodiscard]] bool can_plot();

/// What to tell someone who has no gnuplot.
[[nodiscard]] std::string no_plotter_message();

/// Draws time and memory against the number of tokens, both axes logarithmic, and commits the file. Throws
/// run_error if gnuplot fails.
void plot(output_file& picture, const std::vector<comparison_row>& rows);

}  // namespace tilewise::cli

#endif

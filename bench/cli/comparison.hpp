// One row of the comparison: tiled and naive attention on one input, measured side by side.

#ifndef TILEWISE_CLI_COMPARISON_HPP
#define TILEWISE_CLI_COMPARISON_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tilewise/isa.hpp>

#include "agreement.hpp"
#include "input.hpp"
#include "naive.hpp"

namespace tilewise::cli {

/// What one formulation took.
struct side {
    double cpu_seconds = 0;  ///< best of all repeats, all threads together
    double wall_seconds = 0;
    double median_cpu_seconds = 0;
    double gflops = 0;  ///< all threads together, by the best CPU time, counting visible scores only
    double fraction_of_peak = 0;  ///< of the FMA peak of one core times the threads
    std::size_t scratch_bytes = 0;
    std::optional<std::size_t> peak_rss_bytes;  ///< of a process that does only this
    double max_abs_difference_float64 = 0;
};

struct comparison_row {
    input_spec spec;
    bool causal = false;
    int threads = 1;
    tilewise::isa isa{};
    double flops = 0;
    int repeats = 0;
    double fma_peak_gflops = 0;  ///< one core, the best of the measurements between the repeats
    double fma_peak_spread = 0;  ///< (best - worst) / best of these
    side tiled;
    std::optional<side> naive;  ///< none when skipped
    std::size_t naive_needs_bytes = 0;
    std::size_t available_bytes = 0;  ///< when naive was skipped
    bool bits_equal = false;
    std::int64_t tokens_checked = 0;
    std::uint64_t fingerprint = 0;  ///< of the output's bits: the same on every machine
};

struct comparison_settings {
    bool causal = false;
    int threads = 0;  ///< at most; 0 for what OpenMP would use
    tilewise::isa isa{};
    measure::naive_products products{};
    std::size_t memory = 0;  ///< to use at most; 0 for what is available
    double seconds = 1;      ///< how long to repeat the timings of one row
    bool with_memory = true;
    std::string program;  ///< this program's file, for the processes whose memory is measured
    std::function<void(const std::string&)> progress;
};

/// What a row may use, in bytes.
[[nodiscard]] std::size_t usable_memory(const comparison_settings& settings);

/// Measures one row. The input must fit into memory.
[[nodiscard]] comparison_row measure_row(const input_spec& spec, const comparison_settings& settings);

/// The naive formulation's shape for an input.
[[nodiscard]] measure::naive_shape naive_shape_of(const input_spec& spec, bool causal);

}  // namespace tilewise::cli

#endif

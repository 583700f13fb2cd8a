// The peak memory of one formulation: a process of its own makes the input, computes attention once and
// reports its peak, so that neither formulation hides the other.

#ifndef TILEWISE_CLI_MEMORY_PROBE_HPP
#define TILEWISE_CLI_MEMORY_PROBE_HPP

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <tilewise/isa.hpp>

#include "input.hpp"
#include "naive.hpp"

namespace CLI {
class App;
}

namespace tilewise::cli {

/// The hidden subcommand that a probe runs.
inline constexpr std::string_view memory_probe_command = "memory-probe";

struct memory_probe {
    input_spec spec;
    bool causal = false;
    int threads = 1;
    tilewise::isa isa{};
    std::optional<measure::naive_products> naive;  ///< none for tiled
};

/// Runs a probe in a new process of `program`. None if it failed, for example for want of memory.
[[nodiscard]] std::optional<std::size_t> run_memory_probe(const std::string& program,
                                                          const memory_probe& probe);

/// Declares the subcommand that carries a probe out in this process and prints the bytes.
void add_memory_probe(CLI::App& app);

}  // namespace tilewise::cli

#endif

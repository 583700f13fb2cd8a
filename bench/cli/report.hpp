// The comparison's results as a table for people and as JSON for programs.

#ifndef TILEWISE_CLI_REPORT_HPP
#define TILEWISE_CLI_REPORT_HPP

#include <iosfwd>
#include <string>
#include <vector>

#include "comparison.hpp"

namespace tilewise::cli {

struct machine_facts {
    std::string cpu;
    std::string isa;
    int threads = 1;
    double fma_peak_gflops = 0;
    double read_gbps = 0;
    std::string naive_products;  ///< what computes the opponent's matrix products
};

void print_machine(std::ostream& out, const machine_facts& machine);
void print_table(std::ostream& out, const std::vector<comparison_row>& rows);

/// What the table says and how it was measured, for someone who sees it for the first time.
void print_explanation(std::ostream& out, const std::vector<comparison_row>& rows);

[[nodiscard]] std::string to_json(const machine_facts& machine, const std::vector<comparison_row>& rows);

}  // namespace tilewise::cli

#endif

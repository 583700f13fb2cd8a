// Runs another program and waits for it: this program itself, so that a peak of memory is that of one piece
// of work alone, and the plotter.

#ifndef TILEWISE_MEASURE_CHILD_PROCESS_HPP
#define TILEWISE_MEASURE_CHILD_PROCESS_HPP

#include <string>
#include <vector>

namespace tilewise::measure {

struct child_result {
    bool started = false;  ///< false when the program was not found
    int exit_code = -1;    ///< -1 when it did not start or a signal ended it
    std::string output;    ///< its standard output, and its standard error if asked for
};

/// Runs `program` (looked up in PATH if it has no slash) with these arguments and an empty standard input,
/// and collects what it prints. Throws nothing but std::bad_alloc.
[[nodiscard]] child_result run_child(const std::string& program, const std::vector<std::string>& arguments,
                                     bool with_errors = false);

/// The path of the running program's file; `fallback` if the system does not tell.
[[nodiscard]] std::string own_path(const std::string& fallback);

}  // namespace tilewise::measure

#endif

// What the library does with each value of the environment variable TILEWISE_ISA. It is read once in a
// process, so each value is tried in a child process, before this one has read its own.

#ifndef TILEWISE_TESTS_ISA_PROBE_HPP
#define TILEWISE_TESTS_ISA_PROBE_HPP

#include <span>
#include <string>

namespace tilewise_tests {

struct isa_probe {
    std::string value;       ///< of TILEWISE_ISA
    std::string active_isa;  ///< what active_isa() gave: its name, or "error: " and the message
    std::string attention;   ///< the same for a call of attention(); "computed" or an error
    bool wrote_output = false;
};

/// Runs the probes; main calls it before anything else. Does nothing where there is no fork.
void probe_isa_environment();

/// One probe per value tried; empty where there is no fork.
std::span<const isa_probe> isa_probes();

}  // namespace tilewise_tests

#endif

// What the machine is, as the operating system tells it. Nothing here is measured.

#ifndef TILEWISE_MEASURE_MACHINE_HPP
#define TILEWISE_MEASURE_MACHINE_HPP

#include <cstddef>
#include <string>
#include <vector>

namespace tilewise::measure {

struct cache {
    int level = 0;
    std::string kind;  ///< "data", "unified"
    std::size_t bytes = 0;
};

/// The processor's name, or "unknown".
[[nodiscard]] std::string cpu_name();

/// Data and unified caches of the first core, nearest first; empty if the system does not tell.
[[nodiscard]] std::vector<cache> caches();

/// The threads that an OpenMP program would use here.
[[nodiscard]] int default_threads();

/// Memory that can be used without swapping, in bytes: what the system says is available, and no more than
/// what a container's limit leaves. The largest size_t if unknown.
[[nodiscard]] std::size_t available_memory();

/// The most memory that this process has had resident so far, in bytes; 0 if unknown.
[[nodiscard]] std::size_t peak_resident_memory();

}  // namespace tilewise::measure

#endif

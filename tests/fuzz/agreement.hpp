// How the tiled computation is run. None of it may change one bit.

#ifndef TILEWISE_TESTS_FUZZ_AGREEMENT_HPP
#define TILEWISE_TESTS_FUZZ_AGREEMENT_HPP

#include <cstddef>
#include <functional>
#include <string>
#include <tilewise/attention.hpp>

#include "byte_source.hpp"
#include "entry_points.hpp"

namespace tilewise_tests {

/// What a host does with its threads.
enum class host_pool {
    none,       ///< OpenMP's threads are used
    busy,       ///< it calls nothing
    backwards,  ///< from the last index to the first, in the calling thread
    partial,    ///< some indices
    concurrent  ///< a thread for each
};

struct setting {
    int threads;
    std::size_t scratch_budget;
    host_pool pool;
    entry_point by;
    std::size_t workspace_percent;  ///< of what the plan states; 0: no workspace
};
setting pick_setting(byte_source& bytes);

/// The options with a setting, but for the workspace.
tilewise::options with(tilewise::options how, const setting& run);

/// Calls `run` once for each instruction set of this machine, which is active meanwhile.
void for_each_isa(const std::function<void(const std::string& name)>& run);

}  // namespace tilewise_tests

#endif

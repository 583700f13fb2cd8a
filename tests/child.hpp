// Work in a forked child process, for what must not happen in this one. POSIX only.

#ifndef TILEWISE_TESTS_CHILD_HPP
#define TILEWISE_TESTS_CHILD_HPP

#include <functional>

namespace tilewise_tests {

/// Forks, and calls `work` in the child. Whether it returned true there, in time: a child that hangs is
/// killed.
bool succeeds_in_child(const std::function<bool()>& work);

}  // namespace tilewise_tests

#endif

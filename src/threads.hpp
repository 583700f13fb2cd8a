// Running independent tasks on threads: the one place that knows OpenMP.

#ifndef TILEWISE_SRC_THREADS_HPP
#define TILEWISE_SRC_THREADS_HPP

#include <cstdint>
#include <tilewise/parallel_for.hpp>

namespace tilewise {

/// The threads that a call may have if it asks for so many (0: no particular number) and the host runs them,
/// or, without a host's, OpenMP: one alone in a thread whose team was lost in a fork.
int usable_threads(int asked, const parallel_for& host);

/// Calls body(context, index, thread) once for each index 0 .. count - 1, with thread in 0 .. threads - 1
/// and at most one call at a time for each thread. Indices are handed out in ascending order, each as soon
/// as a thread is free. The body must not throw. Runs in the calling thread alone if threads is 1.
void run_tasks(int threads, std::int64_t count, void (*body)(void* context, std::int64_t index, int thread),
               void* context, const parallel_for& host = {});

}  // namespace tilewise

#endif

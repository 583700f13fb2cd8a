// Running independent tasks on threads: the one place that knows OpenMP.

#ifndef TILEWISE_SRC_THREADS_HPP
#define TILEWISE_SRC_THREADS_HPP

#include <cstdint>

namespace tilewise {

/// The threads that a call gets if it asks for so many, or for no particular number with 0: one alone in a
/// thread whose team was lost in a fork.
int threads_for(int wanted);

/// Calls body(context, index, thread) once for each index 0 .. count - 1, with thread in 0 .. threads - 1
/// and at most one call at a time for each thread. Indices are handed out in ascending order, each as soon
/// as a thread is free. The body must not throw. Runs in the calling thread alone if threads is 1.
void run_tasks(int threads, std::int64_t count, void (*body)(void* context, std::int64_t index, int thread),
               void* context);

}  // namespace tilewise

#endif

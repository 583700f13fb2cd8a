// Threads of the host's own, for programs that have a thread pool and want no other threads.

#ifndef TILEWISE_PARALLEL_FOR_HPP
#define TILEWISE_PARALLEL_FOR_HPP

#include <cstddef>

namespace tilewise {

/// Runs a call's work on threads of the host's. Absent (OpenMP's threads are used) if `run` is null.
///
/// `run` calls body(body_context, index) once for each index from 0 to threads - 1, on any threads, at the
/// same time as far as it can, and returns when all these calls have. Fewer calls will do, even none: work is
/// handed out inside, to whoever asks, and the calling thread does what is left. So a pool that is busy, or
/// is entered a second time from one of its own threads, need not wait. The index is for pools that need one.
///
/// It must not throw.
///
/// The signature of `body` is that of pthreadpool_parallelize_1d and dispatch_apply_f; TBB's parallel_for,
/// ONNX Runtime's TrySimpleParallelFor and the like take a lambda that calls it.
struct parallel_for {
    void (*run)(void* context, int threads, void (*body)(void* body_context, std::size_t index),
                void* body_context) = nullptr;
    void* context = nullptr;
};

}  // namespace tilewise

#endif

#include "threads.hpp"

#include <atomic>
#include <cstddef>

#ifdef TILEWISE_HAVE_OPENMP
#    include <omp.h>
#endif
#if defined(TILEWISE_HAVE_OPENMP) && (defined(__unix__) || defined(__APPLE__))
#    include <pthread.h>
#    define TILEWISE_HAVE_FORK 1
#endif

namespace tilewise {

namespace {

struct shared_work {
    std::int64_t count;
    void (*body)(void* context, std::int64_t index, int thread);
    void* context;
    int threads;
    std::atomic<std::int64_t> next_index{0};
    std::atomic<int> next_thread{0};
};

/// What each thread does. It takes its number here, whatever the host calls it: scratch is safe that way.
void take_part(void* context, std::size_t /*index*/) {
    shared_work& work = *static_cast<shared_work*>(context);
    const int thread = work.next_thread.fetch_add(1, std::memory_order_relaxed);
    if (thread >= work.threads) { return; }
    // One at a time: a core that is busy with something else takes fewer tasks.
    const auto take = [&] { return work.next_index.fetch_add(1, std::memory_order_relaxed); };
    for (std::int64_t index = take(); index < work.count; index = take()) {
        work.body(work.context, index, thread);
    }
}

#ifdef TILEWISE_HAVE_FORK
// OpenMP keeps a team of threads for each thread that has used one. A forked child has the thread that forked
// and no other, and libgomp would wait for that thread's team for ever.
thread_local bool has_team = false;
thread_local bool has_lost_team = false;

void lose_team() { has_lost_team = has_team; }

bool may_lead_team() {
    static const int registered = pthread_atfork(nullptr, nullptr, lose_team);
    static_cast<void>(registered);
    return !has_lost_team;
}
#endif

/// In a function of its own: clang++ starts OpenMP's runtime, which allocates, wherever a function with a
/// parallel region begins.
void run_team([[maybe_unused]] int threads, [[maybe_unused]] shared_work& work) {
#ifdef TILEWISE_HAVE_OPENMP
#    pragma omp parallel num_threads(threads)
    take_part(&work, 0);
#endif
}

}  // namespace

int usable_threads(int asked, const parallel_for& host) {
    if (host.run != nullptr) { return asked; }
#ifdef TILEWISE_HAVE_FORK
    if (!may_lead_team()) { return 1; }
#endif
#ifdef TILEWISE_HAVE_OPENMP
    return asked == 0 ? omp_get_max_threads() : asked;
#else
    return 1;
#endif
}

void run_tasks(int threads, std::int64_t count, void (*body)(void* context, std::int64_t index, int thread),
               void* context, const parallel_for& host) {
    shared_work work{count, body, context, threads};
#ifdef TILEWISE_HAVE_FORK
    has_team = has_team || (threads > 1 && host.run == nullptr);
#endif
    if (threads > 1) {
        if (host.run != nullptr) {
            host.run(host.context, threads, take_part, &work);
        } else {
            run_team(threads, work);
        }
    }
    take_part(&work, 0);  // all of it, or what no other thread was there for
}

}  // namespace tilewise

#include "threads.hpp"

#ifdef TILEWISE_HAVE_OPENMP
#    include <omp.h>
#endif
#if defined(TILEWISE_HAVE_OPENMP) && (defined(__unix__) || defined(__APPLE__))
#    include <pthread.h>
#    define TILEWISE_HAVE_FORK 1
#endif

namespace tilewise {

#ifdef TILEWISE_HAVE_FORK
namespace {

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

}  // namespace
#endif

int threads_for(int wanted) {
#ifdef TILEWISE_HAVE_FORK
    if (!may_lead_team()) { return 1; }
#endif
#ifdef TILEWISE_HAVE_OPENMP
    return wanted == 0 ? omp_get_max_threads() : wanted;
#else
    return wanted == 0 ? 1 : wanted;
#endif
}

void run_tasks(int threads, std::int64_t count, void (*body)(void* context, std::int64_t index, int thread),
               void* context) {
#ifdef TILEWISE_HAVE_FORK
    has_team = has_team || threads > 1;
#endif
#ifdef TILEWISE_HAVE_OPENMP
    if (threads > 1) {
        // Dynamic, one at a time: a core that is busy with something else takes fewer tasks.
#    pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (std::int64_t index = 0; index < count; ++index) { body(context, index, omp_get_thread_num()); }
        return;
    }
#endif
    static_cast<void>(threads);
    for (std::int64_t index = 0; index < count; ++index) { body(context, index, 0); }
}

}  // namespace tilewise

#include "threads.hpp"

#ifdef TILEWISE_HAVE_OPENMP
#    include <omp.h>
#endif

namespace tilewise {

int default_threads() {
#ifdef TILEWISE_HAVE_OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

void run_tasks(int threads, std::int64_t count, void (*body)(void* context, std::int64_t index, int thread),
               void* context) {
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

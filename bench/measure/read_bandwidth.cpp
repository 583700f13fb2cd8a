#include "read_bandwidth.hpp"

#include <algorithm>
#include <cstdint>

#include "aligned_buffer.hpp"
#include "clock.hpp"
#include "isa_tables.hpp"
#include "machine.hpp"

namespace tilewise::measure {

double read_bandwidth_gbps(isa which, int threads, std::size_t bytes, int repeats) {
    const machine_kernels& kernels = machine_kernels_of(which);
    constexpr std::int64_t step = 1024;
    const std::size_t usable = std::min(bytes, available_memory() / 2);
    const auto steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(usable / sizeof(float)) / step);
    const auto floats = steps * step;
    const aligned_buffer buffer = allocate_aligned(static_cast<std::size_t>(floats));
    // Written, so that every page has memory of its own; by the threads that will read it.
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < floats; ++i) { buffer[static_cast<std::size_t>(i)] = 1.0F; }

    double best = 0;
    for (int i = 0; i < repeats; ++i) {
        float total = 0;
        const stopwatch watch(threads);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
        for (std::int64_t part = 0; part < threads; ++part) {
            const std::int64_t first = steps * part / threads * step;
            const std::int64_t last = steps * (part + 1) / threads * step;
            total += kernels.sum(buffer.get() + first, last - first);
        }
        const double seconds = watch.elapsed().wall;
        if (total > 0) {
            best = std::max(best, 1e-9 * static_cast<double>(floats) * sizeof(float) / seconds);
        }
    }
    return best;
}

}  // namespace tilewise::measure

#include "read_bandwidth.hpp"

#include <algorithm>

#include "aligned_buffer.hpp"
#include "isa_tables.hpp"
#include "machine.hpp"

namespace tilewise::measure {
namespace {

/// Makes sure that what was summed counts as used.
volatile float last_sum = 0;

}  // namespace

duration read_memory(isa which, int threads, const void* memory, std::size_t bytes, read_order order,
                     int passes) {
    const machine_kernels& kernels = machine_kernels_of(which);
    const auto sum = order == read_order::in_order ? kernels.sum : kernels.sum_streams;
    const auto* const values = static_cast<const float*>(memory);
    constexpr std::int64_t step = read_step / sizeof(float);
    const auto steps = static_cast<std::int64_t>(bytes / read_step);
    float total = 0;
    double cpu = 0;
    const stopwatch all(1);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total, cpu)
    for (std::int64_t part = 0; part < threads; ++part) {
        const std::int64_t first = steps * part / threads * step;
        const std::int64_t last = steps * (part + 1) / threads * step;
        const stopwatch own(1);
        for (int pass = 0; pass < passes; ++pass) { total += sum(values + first, last - first); }
        cpu += own.elapsed().cpu;
    }
    const double wall = all.elapsed().wall;
    last_sum = total;
    return {wall, cpu};
}

double read_bandwidth_gbps(isa which, int threads, std::size_t bytes, int repeats) {
    const std::size_t usable = std::min(bytes, available_memory() / 2);
    const std::size_t whole = std::max(read_step, usable / read_step * read_step);
    const aligned_buffer buffer = allocate_aligned(whole / sizeof(float));
    // Written, so that every page has memory of its own; by the threads that will read it.
    const auto floats = static_cast<std::int64_t>(whole / sizeof(float));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < floats; ++i) { buffer[static_cast<std::size_t>(i)] = 1.0F; }

    double best = 0;
    for (int i = 0; i < repeats; ++i) {
        for (const read_order order : {read_order::in_order, read_order::streams}) {
            const double seconds = read_memory(which, threads, buffer.get(), whole, order).wall;
            best = std::max(best, 1e-9 * static_cast<double>(whole) / seconds);
        }
    }
    return best;
}

}  // namespace tilewise::measure

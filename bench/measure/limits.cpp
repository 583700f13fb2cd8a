#include "limits.hpp"

#include <algorithm>
#include <cmath>

namespace tilewise::measure {
namespace {

/// Much more than the last-level cache of one core's share; less of each of the two memories is read.
constexpr std::size_t most_bytes = std::size_t{64} << 20;

/// In the second-level cache of any processor.
constexpr std::size_t small_bytes = std::size_t{256} << 10;

/// Shorter readings are repeated.
constexpr double least_seconds = 1e-3;

}  // namespace

limits::limits(isa which, numbers with, int threads, const work& of)
    : isa_(which), numbers_(with), threads_(threads), work_(of) {
    work_.memory_bytes = std::min(work_.memory_bytes, most_bytes);
    work_.more_memory_bytes = std::min(work_.more_memory_bytes, most_bytes);
    double best = 0;
    for (int i = 0; i < 3; ++i) {
        for (const auto order : {read_order::in_order, read_order::streams}) {
            const double seconds = read(order, 1);
            if (best == 0 || seconds < best) {
                best = seconds;
                order_ = order;
            }
        }
    }
    passes_ = static_cast<int>(std::clamp(std::ceil(least_seconds / best), 1.0, 1e4));
}

double limits::read(read_order order, int passes) const {
    // Each memory several times in a row, or one after the other: the second is what a call does, but a clock
    // read for every few microseconds would be felt.
    const bool in_a_row = work_.memory_bytes + work_.more_memory_bytes <= small_bytes;
    double cpu = 0;
    for (int pass = 0; pass < (in_a_row ? 1 : passes); ++pass) {
        const int times = in_a_row ? passes : 1;
        cpu += read_memory(isa_, threads_, work_.memory, work_.memory_bytes, order, times).cpu;
        if (work_.more_memory_bytes > 0) {
            cpu += read_memory(isa_, threads_, work_.more_memory, work_.more_memory_bytes, order, times).cpu;
        }
    }
    return std::max(cpu / threads_, 1e-9);
}

limit_rates limits::rates() const {
    const double seconds = read(order_, passes_);
    const auto bytes = static_cast<double>(work_.memory_bytes + work_.more_memory_bytes);
    return {peak_gflops(isa_, numbers_), 1e-9 * bytes * passes_ / seconds};
}

double limits::seconds(const limit_rates& at) const {
    return 1e-9 * std::max(work_.flops / (at.peak_gflops * threads_), work_.bytes / at.read_gbps);
}

bool limits::is_memory(const limit_rates& at) const {
    return work_.bytes / at.read_gbps > work_.flops / (at.peak_gflops * threads_);
}

}  // namespace tilewise::measure

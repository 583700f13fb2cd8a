#include "limits.hpp"

#include <algorithm>
#include <cmath>

#include "fma_peak.hpp"

namespace tilewise::suites {
namespace {

/// Much more than the last-level cache of one core's share; less of each of the two memories is read.
constexpr std::size_t most_bytes = std::size_t{64} << 20;

/// Shorter readings are repeated.
constexpr double least_seconds = 1e-3;

}  // namespace

limits::limits(isa which, int threads, const work& of) : isa_(which), threads_(threads), work_(of) {
    work_.memory_bytes = std::min(work_.memory_bytes, most_bytes);
    work_.more_memory_bytes = std::min(work_.more_memory_bytes, most_bytes);
    double best = 0;
    for (int i = 0; i < 3; ++i) {
        for (const auto order : {measure::read_order::in_order, measure::read_order::streams}) {
            const double seconds = read_once(order);
            if (best == 0 || seconds < best) {
                best = seconds;
                order_ = order;
            }
        }
    }
    passes_ = static_cast<int>(std::clamp(std::ceil(least_seconds / best), 1.0, 1e4));
}

double limits::read_once(measure::read_order order) const {
    double cpu = measure::read_memory(isa_, threads_, work_.memory, work_.memory_bytes, order).cpu;
    if (work_.more_memory_bytes > 0) {
        cpu += measure::read_memory(isa_, threads_, work_.more_memory, work_.more_memory_bytes, order).cpu;
    }
    return std::max(cpu / threads_, 1e-9);
}

limit_rates limits::measure() const {
    double seconds = 0;
    for (int i = 0; i < passes_; ++i) { seconds += read_once(order_); }
    const auto bytes = static_cast<double>(work_.memory_bytes + work_.more_memory_bytes);
    return {measure::fma_peak_gflops(isa_), 1e-9 * bytes * passes_ / seconds};
}

double limits::seconds(const limit_rates& rates) const {
    return 1e-9 * std::max(work_.flops / (rates.peak_gflops * threads_), work_.bytes / rates.read_gbps);
}

bool limits::is_memory(const limit_rates& rates) const {
    return work_.bytes / rates.read_gbps > work_.flops / (rates.peak_gflops * threads_);
}

}  // namespace tilewise::suites

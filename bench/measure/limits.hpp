// What the machine allows a call at most, measured beside it: the larger of the time that its operations take
// at the peak of its multiply-adds, and the time that its bytes take at the speed at which the same memory is
// read.

#ifndef TILEWISE_MEASURE_LIMITS_HPP
#define TILEWISE_MEASURE_LIMITS_HPP

#include <cstddef>
#include <vector>

#include <tilewise/isa.hpp>

#include "fma_peak.hpp"
#include "read_bandwidth.hpp"

namespace tilewise::measure {

/// What a call has to do at least, and memory like that it reads from.
struct work {
    double flops = 0;
    double bytes = 0;
    const void* memory = nullptr;
    std::size_t memory_bytes = 0;
    const void* more_memory = nullptr;
    std::size_t more_memory_bytes = 0;
};

/// One measurement of both limits.
struct limit_rates {
    double peak_gflops = 0;  ///< of one core
    double read_gbps = 0;    ///< of all threads together
};

class limits {
public:
    limits(isa which, numbers with, int threads, const work& of);

    /// A few milliseconds to tens of them. By CPU time, divided by the threads: what others take away of the
    /// cores does not count, what they take away of the memory's speed does.
    [[nodiscard]] limit_rates rates() const;

    /// The least time of a call, in seconds.
    [[nodiscard]] double seconds(const limit_rates& at) const;
    [[nodiscard]] bool is_memory(const limit_rates& at) const;

private:
    [[nodiscard]] double read(read_order order, int passes) const;

    isa isa_;
    numbers numbers_;
    int threads_;
    work work_;
    read_order order_ = read_order::in_order;
    int passes_ = 1;
};

}  // namespace tilewise::measure

#endif

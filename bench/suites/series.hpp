// Times one call beside the limits of the machine, and reports both.
//
// Every repeat is a batch of calls with a measurement of the limits right before and after it, and is
// compared with the mean of these two: on a machine that others use as well, rates move within seconds.

#ifndef TILEWISE_SUITES_SERIES_HPP
#define TILEWISE_SUITES_SERIES_HPP

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>

#include "limits.hpp"

namespace tilewise::suites {

/// What is timed.
struct timed_call {
    std::function<void()> run;
    measure::work least;
    tilewise::isa isa{};
    measure::numbers peak{};  ///< what its operations are compared with
    int threads = 1;
    std::size_t scratch_bytes = 0;
};

/// The body of a benchmark. Its counters:
///   GFLOP/s       of the best repeat, by CPU time, all threads together; visible scores only
///   GB/s          the same of the bytes that have to be read and written
///   of_limit      the least time over the CPU time of a thread, the median of the repeats
///   of_limit_best the smallest of the least times over the smallest of the times
///   of_limit_wall as of_limit, over the wall time
///   cpu, cpu_best, wall, wall_best   seconds of a call, median and best; CPU time is that of all threads
///   peak, read    the limits: GFLOP/s of one core, GB/s of all threads; medians
///   peak_spread, read_spread   of the middle half of their measurements, over the median
///   flops, bytes  what a call has to do at least
///   scratch       bytes that a call allocates
///   repeats       batches of calls
/// attention_benchmark adds:
///   peak_memory   the most resident memory of a process that makes one call and nothing else
/// Beside them, the library's own columns are means: of wall time, and of the calling thread's CPU time.
/// The label tells which limit counts, and whether it is not to be trusted: its spread is above 10 %
/// (UNSTEADY), or calls were faster (EXCEEDED).
void time_call(benchmark::State& state, const timed_call& call);

}  // namespace tilewise::suites

#endif

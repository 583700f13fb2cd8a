// How fast memory can be read: the ceiling of everything that touches each byte once.

#ifndef TILEWISE_MEASURE_READ_BANDWIDTH_HPP
#define TILEWISE_MEASURE_READ_BANDWIDTH_HPP

#include <cstddef>

#include <tilewise/isa.hpp>

namespace tilewise::measure {

/// The rate, in GB/s (10^9 bytes) by wall clock, at which `threads` threads together sum a buffer of `bytes`
/// bytes (half of the available memory at most), best of `repeats`. The default is much larger than common
/// last-level caches.
/// Throws std::bad_alloc if the buffer cannot be had.
[[nodiscard]] double read_bandwidth_gbps(isa which, int threads, std::size_t bytes = std::size_t{256} << 20,
                                         int repeats = 5);

}  // namespace tilewise::measure

#endif

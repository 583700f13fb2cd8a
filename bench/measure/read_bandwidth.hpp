// How fast memory can be read: the ceiling of everything that touches each byte once.

#ifndef TILEWISE_MEASURE_READ_BANDWIDTH_HPP
#define TILEWISE_MEASURE_READ_BANDWIDTH_HPP

#include <cstddef>
#include <cstdint>

#include <tilewise/isa.hpp>

#include "clock.hpp"

namespace tilewise::measure {

/// What read_memory reads in one step of a thread, in bytes.
inline constexpr std::size_t read_step = 4096;

/// How the threads of read_memory go through their part: in_order is faster where it is in a cache, streams
/// where it is not.
enum class read_order : std::uint8_t { in_order, streams };

/// Reads `bytes` bytes (rounded down to a multiple of read_step) at an address that is a multiple of 64, each
/// `passes` times, with `threads` threads, and says how long it took. The CPU time is that of reading alone,
/// and not of starting threads and of waiting for them.
duration read_memory(isa which, int threads, const void* memory, std::size_t bytes, read_order order,
                     int passes = 1);

/// The rate, in GB/s (10^9 bytes) by wall clock, at which `threads` threads together read a buffer of `bytes`
/// bytes (half of the available memory at most), best of `repeats` in the better of both orders. The default
/// is much larger than common last-level caches.
/// Throws std::bad_alloc if the buffer cannot be had.
[[nodiscard]] double read_bandwidth_gbps(isa which, int threads, std::size_t bytes = std::size_t{256} << 20,
                                         int repeats = 5);

}  // namespace tilewise::measure

#endif

// Clocks, and what a series of timings says. Used by the program and the benchmarks.

#ifndef TILEWISE_MEASURE_CLOCK_HPP
#define TILEWISE_MEASURE_CLOCK_HPP

#include <ctime>
#include <string_view>
#include <vector>

namespace tilewise::measure {

struct duration {
    double wall = 0;  ///< seconds
    double cpu = 0;   ///< seconds of processor time
};

/// Measures from its construction on. CPU time is that of the calling thread when `threads` is 1, and of
/// all threads of the process otherwise: it leaves out what other programs and a virtual machine's
/// neighbours take away, and includes threads that wait in a spin loop. No thread may end meanwhile.
class stopwatch {
public:
    explicit stopwatch(int threads);
    [[nodiscard]] duration elapsed() const;

private:
    bool one_thread_;
    std::vector<clockid_t> clocks_;  ///< of the threads alive at the start, and
    std::vector<double> starts_;     ///< what they showed
    double wall_start_ = 0;
};

/// What stopwatch's CPU time is, in words for a reader.
[[nodiscard]] std::string_view cpu_clock_name(int threads);

/// The value in the middle (the mean of the two in the middle); 0 of none.
[[nodiscard]] double median(std::vector<double> values);

/// The smallest; 0 of none.
[[nodiscard]] double smallest(const std::vector<double>& values);

/// How far the middle half of the values spreads, over their median: a quarter of them is below it, and a
/// quarter above. All of fewer than four.
[[nodiscard]] double spread(std::vector<double> values);

/// The largest; 0 of none.
[[nodiscard]] double largest(const std::vector<double>& values);

}  // namespace tilewise::measure

#endif

#include "clock.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace tilewise::measure {
namespace {

double read_clock(clockid_t clock) {
    timespec now{};
    if (clock_gettime(clock, &now) != 0) { return 0; }
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The CPU clock of every thread of this process. Linux adds what running threads have used to the clock of
/// the process only every few milliseconds, but to that of a thread whenever it is read.
std::vector<clockid_t> thread_clocks() {
    std::vector<clockid_t> clocks;
#if defined(__linux__)
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", failed)) {
        const auto thread = static_cast<unsigned>(std::atoi(entry.path().filename().c_str()));
        // As pthread_getcpuclockid makes it.
        clocks.push_back(static_cast<clockid_t>(~thread << 3 | 6U));
    }
#endif
    if (clocks.empty()) { clocks.push_back(CLOCK_PROCESS_CPUTIME_ID); }
    return clocks;
}

}  // namespace

stopwatch::stopwatch(int threads) : one_thread_(threads == 1) {
    clocks_ = one_thread_ ? std::vector<clockid_t>{CLOCK_THREAD_CPUTIME_ID} : thread_clocks();
    for (const clockid_t clock : clocks_) { starts_.push_back(read_clock(clock)); }
    wall_start_ = read_clock(CLOCK_MONOTONIC);
}

duration stopwatch::elapsed() const {
    duration passed{read_clock(CLOCK_MONOTONIC) - wall_start_, 0};
    for (std::size_t i = 0; i < clocks_.size(); ++i) { passed.cpu += read_clock(clocks_[i]) - starts_[i]; }
    if (one_thread_) { return passed; }
    for (const clockid_t clock : thread_clocks()) {
        const bool is_new = std::find(clocks_.begin(), clocks_.end(), clock) == clocks_.end();
        if (is_new) { passed.cpu += read_clock(clock); }
    }
    return passed;
}

std::string_view cpu_clock_name(int threads) {
    return threads == 1 ? "CPU time of the one thread" : "CPU time of all threads of the process";
}

double median(std::vector<double> values) {
    if (values.empty()) { return 0; }
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double spread(std::vector<double> values) {
    if (values.empty()) { return 0; }
    std::sort(values.begin(), values.end());
    const std::size_t quarter = values.size() / 4;
    return (values[values.size() - 1 - quarter] - values[quarter]) / median(values);
}

double smallest(const std::vector<double>& values) {
    return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double largest(const std::vector<double>& values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

}  // namespace tilewise::measure

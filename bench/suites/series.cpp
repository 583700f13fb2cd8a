#include "series.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "clock.hpp"

namespace tilewise::suites {
namespace {

/// A batch of calls takes at least so long, or the clock would be felt.
constexpr double batch_seconds = 4e-3;

class series {
public:
    series(const measure::limits& most, const measure::work& least, int threads)
        : most_(most), least_(least), threads_(threads), before_(most.rates()) {
        note(before_);
    }

    void add(const measure::duration& passed, double calls) {
        const measure::limit_rates after = most_.rates();
        note(after);
        const double least = (most_.seconds(before_) + most_.seconds(after)) / 2;
        const double cpu = passed.cpu / calls;
        const double wall = passed.wall / calls;
        cpu_.push_back(cpu);
        wall_.push_back(wall);
        least_seconds_.push_back(most_.seconds(after));
        of_limit_.push_back(least * threads_ / cpu);
        of_limit_wall_.push_back(least / wall);
        before_ = after;
    }

    void report(benchmark::State& state, std::size_t scratch_bytes) const {
        const double best = measure::smallest(cpu_) / threads_;
        auto& counters = state.counters;
        counters["GFLOP/s"] = 1e-9 * least_.flops / best;
        counters["GB/s"] = 1e-9 * least_.bytes / best;
        counters["of_limit"] = measure::median(of_limit_);
        counters["of_limit_best"] = measure::smallest(least_seconds_) / best;
        counters["of_limit_wall"] = measure::median(of_limit_wall_);
        counters["cpu"] = measure::median(cpu_);
        counters["cpu_best"] = measure::smallest(cpu_);
        counters["wall"] = measure::median(wall_);
        counters["wall_best"] = measure::smallest(wall_);
        counters["peak"] = measure::median(peaks_);
        counters["peak_spread"] = measure::spread(peaks_);
        counters["read"] = measure::median(reads_);
        counters["read_spread"] = measure::spread(reads_);
        counters["scratch"] = static_cast<double>(scratch_bytes);
        counters["flops"] = least_.flops;
        counters["bytes"] = least_.bytes;
        counters["repeats"] = static_cast<double>(cpu_.size());
        state.SetLabel(label());
    }

private:
    void note(const measure::limit_rates& rates) {
        peaks_.push_back(rates.peak_gflops);
        reads_.push_back(rates.read_gbps);
    }

    [[nodiscard]] std::string label() const {
        const bool memory = most_.is_memory({measure::median(peaks_), measure::median(reads_)});
        const double spread = measure::spread(memory ? reads_ : peaks_);
        std::string text = memory ? "limit: memory" : "limit: FMA";
        if (spread > 0.1) {
            text += ", UNSTEADY: spread " + std::to_string(std::lround(100 * spread)) + " %";
        }
        // Such as where the C library copies with wider instructions than those that the limit is measured
        // with.
        if (measure::median(of_limit_) > 1) { text += ", EXCEEDED"; }
        return text;
    }

    const measure::limits& most_;
    measure::work least_;
    int threads_;
    measure::limit_rates before_;
    std::vector<double> cpu_, wall_, least_seconds_, of_limit_, of_limit_wall_, peaks_, reads_;
};

/// How many calls take batch_seconds.
benchmark::IterationCount calls_per_batch(const timed_call& call) {
    call.run();  // starts the threads, and touches memory for the first time
    benchmark::IterationCount calls = 1;
    while (calls < 1'000'000) {
        const measure::stopwatch watch(call.threads);
        for (benchmark::IterationCount i = 0; i < calls; ++i) { call.run(); }
        const double passed = watch.elapsed().cpu / call.threads;
        if (passed >= batch_seconds / 4) {
            const double needed = static_cast<double>(calls) * batch_seconds / passed;
            return std::max<benchmark::IterationCount>(1, std::llround(std::ceil(needed)));
        }
        calls *= 4;
    }
    return calls;
}

}  // namespace

void time_call(benchmark::State& state, const timed_call& call) {
    const measure::limits most(call.isa, call.peak, call.threads, call.least);
    const benchmark::IterationCount calls = calls_per_batch(call);
    series all(most, call.least, call.threads);
    while (state.KeepRunningBatch(calls)) {
        const measure::stopwatch watch(call.threads);
        for (benchmark::IterationCount i = 0; i < calls; ++i) { call.run(); }
        const measure::duration passed = watch.elapsed();
        state.PauseTiming();
        all.add(passed, static_cast<double>(calls));
        state.ResumeTiming();
    }
    all.report(state, call.scratch_bytes);
}

}  // namespace tilewise::suites

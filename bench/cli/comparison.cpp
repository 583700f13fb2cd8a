#include "comparison.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include <tilewise/attention.hpp>

#include "clock.hpp"
#include "fma_peak.hpp"
#include "machine.hpp"
#include "memory_probe.hpp"

namespace tilewise::cli {
namespace {

/// Memory that a run needs beyond what is counted: the program itself, and some to spare.
constexpr std::size_t spare_memory = std::size_t{16} << 20;

/// 64-bit FNV-1a.
std::uint64_t fingerprint_of(const std::vector<float>& values) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3U;
    }
    return hash;
}

/// All timings of one row.
struct timings {
    std::vector<double> tiled_cpu, tiled_wall, naive_cpu, naive_wall, peaks;
};

void record(const measure::stopwatch& watch, std::vector<double>& cpu, std::vector<double>& wall) {
    const measure::duration passed = watch.elapsed();
    cpu.push_back(passed.cpu);
    wall.push_back(passed.wall);
}

/// The buffers and the two formulations of one row.
class contest {
public:
    contest(const input_spec& spec, const comparison_settings& settings)
        : settings_(settings), from_(make_input(spec)), out_(from_.q.size()), naive_out_(from_.q.size()) {
        how_.causal = settings.causal ? causal::bottom_right : causal::none;
        how_.threads = settings.threads;
        plan_ =
            plan_attention(from_.q_view(), from_.k_view(), from_.v_view(), from_.out_view(out_.data()), how_);
        how_.threads = plan_.threads;
    }

    /// Allocates the naive formulation's buffers, unless they would not fit.
    void prepare_naive(comparison_row& row) {
        const measure::naive_shape shape = naive_shape_of(from_.spec, settings_.causal);
        row.naive_needs_bytes =
            measure::naive_scratch_bytes(shape, settings_.products, settings_.isa, plan_.threads);
        row.available_bytes = usable_memory(settings_);
        // The input once more, for the process that measures the memory.
        const auto input_bytes = static_cast<std::size_t>(from_.spec.bytes());
        if (row.naive_needs_bytes > row.available_bytes ||
            row.available_bytes - row.naive_needs_bytes < input_bytes + spare_memory) {
            return;
        }
        naive_ = std::make_unique<measure::naive_attention>(shape, settings_.products, settings_.isa,
                                                            plan_.threads);
    }

    void run_tiled() {
        attention(from_.q_view(), from_.k_view(), from_.v_view(), from_.out_view(out_.data()), how_);
    }
    void run_naive() { naive_->run(from_.q.data(), from_.k.data(), from_.v.data(), naive_out_.data()); }

    /// Tiled, naive and the FMA peak in turn, so that all see the same state of the machine.
    timings time() {
        timings t;
        const measure::stopwatch all(1);
        do {
            const std::string count = " (repeat " + std::to_string(t.tiled_cpu.size() + 1) + ")";
            t.peaks.push_back(measure::fma_peak_gflops(settings_.isa));
            settings_.progress("tiled" + count);
            const measure::stopwatch tiled(plan_.threads);
            run_tiled();
            record(tiled, t.tiled_cpu, t.tiled_wall);
            t.peaks.push_back(measure::fma_peak_gflops(settings_.isa));
            if (naive_) {
                settings_.progress("naive" + count);
                const measure::stopwatch watch(plan_.threads);
                run_naive();
                record(watch, t.naive_cpu, t.naive_wall);
            }
        } while (wants_more(all.elapsed().wall, t.tiled_cpu.size()));
        t.peaks.push_back(measure::fma_peak_gflops(settings_.isa));
        return t;
    }

    [[nodiscard]] const input& from() const { return from_; }
    [[nodiscard]] const plan& planned() const { return plan_; }
    [[nodiscard]] const std::vector<float>& out() const { return out_; }
    [[nodiscard]] const std::vector<float>& naive_out() const { return naive_out_; }
    [[nodiscard]] bool has_naive() const { return naive_ != nullptr; }
    void release_naive() { naive_.reset(); }

private:
    /// The first run of all pays for the threads' start: three at least, if they are short.
    [[nodiscard]] bool wants_more(double passed, std::size_t repeats) const {
        constexpr std::size_t fewest = 3;
        constexpr std::size_t most = 100;
        return repeats < most && (passed < settings_.seconds || (repeats < fewest && passed < 1));
    }

    const comparison_settings& settings_;
    input from_;
    std::vector<float> out_;
    std::vector<float> naive_out_;
    options how_;
    plan plan_;
    std::unique_ptr<measure::naive_attention> naive_;
};

side side_of(const std::vector<double>& cpu, const std::vector<double>& wall, std::size_t scratch,
             const comparison_row& row) {
    side s;
    s.cpu_seconds = measure::smallest(cpu);
    s.wall_seconds = measure::smallest(wall);
    s.median_cpu_seconds = measure::median(cpu);
    s.gflops = 1e-9 * row.flops / s.cpu_seconds * row.threads;
    s.fraction_of_peak = s.gflops / (row.fma_peak_gflops * row.threads);
    s.scratch_bytes = scratch;
    return s;
}

void measure_memory(comparison_row& row, const comparison_settings& settings) {
    memory_probe probe{row.spec, settings.causal, row.threads, settings.isa, std::nullopt};
    settings.progress("memory of tiled");
    row.tiled.peak_rss_bytes = run_memory_probe(settings.program, probe);
    if (!row.naive) { return; }
    settings.progress("memory of naive");
    probe.naive = settings.products;
    row.naive->peak_rss_bytes = run_memory_probe(settings.program, probe);
}

}  // namespace

std::size_t usable_memory(const comparison_settings& settings) {
    const std::size_t available = measure::available_memory();
    return settings.memory == 0 ? available : std::min(available, settings.memory);
}

measure::naive_shape naive_shape_of(const input_spec& spec, bool causal) {
    return {1,
            spec.heads,
            spec.kv_heads,
            spec.tokens,
            spec.tokens,
            spec.head_dim,
            spec.head_dim,
            causal,
            1.0F / std::sqrt(static_cast<float>(spec.head_dim))};
}

comparison_row measure_row(const input_spec& spec, const comparison_settings& settings) {
    settings.progress("input");
    contest both(spec, settings);
    comparison_row row;
    row.spec = both.from().spec;
    row.causal = settings.causal;
    row.threads = both.planned().threads;
    row.isa = settings.isa;
    row.flops = both.planned().flops;
    both.prepare_naive(row);

    const timings t = both.time();
    row.repeats = static_cast<int>(t.tiled_cpu.size());
    row.fma_peak_gflops = measure::largest(t.peaks);
    row.fma_peak_spread = 1 - measure::smallest(t.peaks) / row.fma_peak_gflops;
    row.tiled = side_of(t.tiled_cpu, t.tiled_wall, both.planned().scratch_bytes, row);
    if (both.has_naive()) { row.naive = side_of(t.naive_cpu, t.naive_wall, row.naive_needs_bytes, row); }
    both.release_naive();

    settings.progress("comparing with the oracle and float64");
    const std::vector<std::int64_t> tokens = tokens_to_check(row.spec, settings.causal, both.planned());
    const int checkers = settings.threads == 0 ? measure::default_threads() : settings.threads;
    const agreement checked = check(both.from(), settings.causal, both.out(), tokens, checkers);
    row.bits_equal = checked.bits_equal;
    row.tokens_checked = checked.tokens_checked;
    row.tiled.max_abs_difference_float64 = checked.max_abs_difference_float64;
    row.fingerprint = fingerprint_of(both.out());
    if (row.naive) {
        row.naive->max_abs_difference_float64 =
            check(both.from(), settings.causal, both.naive_out(), tokens, checkers)
                .max_abs_difference_float64;
    }
    if (settings.with_memory) { measure_memory(row, settings); }
    return row;
}

}  // namespace tilewise::cli

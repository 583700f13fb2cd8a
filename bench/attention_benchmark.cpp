// How fast attention() is, as a share of what the machine's FMA units can do at most.
//
// Every timed call has a measurement of the FMA peak right before and after it, so that both see the same
// clock rate. The times of prefill are CPU times of all threads. Its counters:
//   GFLOP/s          of the best call, by CPU time, all threads together; visible scores only
//   fraction_best    that, over the best peak times the threads
//   fraction_median  the median over the calls, each over the higher of the peaks around it
//   scratch          bytes that a call allocates
// Run one group with --benchmark_filter, for example 'prefill/avx2/.*threads:1'.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <tilewise/tilewise.hpp>

#include "clock.hpp"
#include "fma_peak.hpp"

namespace {

using tilewise::axis;
using tilewise::const_tensor;
using tilewise::element_type;

/// How the rows of one head lie in memory. All but the first are far apart.
enum class layout : std::uint8_t { bhsd, bshd_32_heads, packed_qkv, sliced };

const char* name_of(layout which) {
    switch (which) {
        case layout::bhsd:
            return "bhsd";
        case layout::bshd_32_heads:
            return "bshd_32_heads";
        case layout::packed_qkv:
            return "packed_qkv";
        default:
            return "sliced_4KiB_rows";
    }
}

/// What is masked, or done to the scores.
enum class masking : std::uint8_t { no_mask, causal, window_1024, all_true_mask, bias, soft_cap, alibi };

const char* name_of(masking which) {
    switch (which) {
        case masking::no_mask:
            return "no_mask";
        case masking::causal:
            return "causal";
        case masking::window_1024:
            return "window_1024";
        case masking::all_true_mask:
            return "all_true_mask";
        case masking::bias:
            return "bias";
        case masking::soft_cap:
            return "soft_cap";
        default:
            return "alibi";
    }
}

struct named_type {
    element_type type;
    const char* name;
};
constexpr std::array named_types = {
    named_type{element_type::f32, "f32"},   named_type{element_type::f16, "f16"},
    named_type{element_type::bf16, "bf16"}, named_type{element_type::q8_0, "q8_0"},
    named_type{element_type::q4_0, "q4_0"}, named_type{element_type::i8, "i8"},
    named_type{element_type::e4m3, "e4m3"}, named_type{element_type::e5m2, "e5m2"}};

const char* name_of(element_type which) {
    return std::find_if(named_types.begin(), named_types.end(),
                        [=](const named_type& n) { return n.type == which; })
        ->name;
}

struct shape {
    tilewise::isa isa{};
    std::int64_t tokens = 0;
    std::int64_t head_dim = 0;
    masking mask = masking::no_mask;
    layout rows = layout::bhsd;
    int threads = 1;
    element_type type = element_type::f32;  ///< of k and v, and of q if it is not quantised
};

/// One query head and one key head, in any layout.
class problem {
public:
    explicit problem(const shape& s) : out_(count(s.tokens * s.head_dim)) {
        const std::int64_t t = s.tokens;
        const std::int64_t d = s.head_dim;
        const auto one_head = [](const const_tensor& all) { return all.slice(axis::heads, 0, 1); };
        if (s.rows == layout::packed_qkv) {
            fill(t * 24 * d);
            const auto views =
                tilewise::packed_qkv(static_cast<const float*>(memory_.data()), 1, t, 16, 4, d);
            use(one_head(views.q), one_head(views.k), one_head(views.v));
        } else if (s.rows == layout::bshd_32_heads) {
            fill(3 * t * 32 * d);
            use(one_head(tilewise::bshd(tensor_at(0, t * 32 * d), 1, t, 32, d)),
                one_head(tilewise::bshd(tensor_at(1, t * 32 * d), 1, t, 32, d)),
                one_head(tilewise::bshd(tensor_at(2, t * 32 * d), 1, t, 32, d)));
        } else {
            const std::int64_t width = s.rows == layout::sliced ? 1024 : d;
            fill(3 * t * width);
            const auto part = [&](int index) {
                return tilewise::bhsd(tensor_at(index, t * width), 1, 1, t, width)
                    .slice(axis::head_dim, 0, d);
            };
            use(part(0), part(1), part(2));
        }
        if (s.type != element_type::f32) { store_in(s.type); }
        result_ = tilewise::bhsd(out_.data(), 1, 1, t, d);
        how_.threads = s.threads;
        set_mask(s);
    }

    void run() const { tilewise::attention(q_, k_, v_, result_, how_); }
    [[nodiscard]] tilewise::plan plan() const { return tilewise::plan_attention(q_, k_, v_, result_, how_); }

private:
    static std::size_t count(std::int64_t elements) { return static_cast<std::size_t>(elements); }

    [[nodiscard]] const float* tensor_at(int index, std::int64_t elements) const {
        return memory_.data() + index * elements;
    }

    void fill(std::int64_t elements) {
        memory_.resize(count(elements));
        std::uint32_t state = 1;
        for (float& value : memory_) {
            state = state * 1664525U + 1013904223U;
            value = static_cast<float>(state >> 8) * 0x1p-22F - 2.0F;
        }
    }

    void use(const const_tensor& q, const const_tensor& k, const const_tensor& v) {
        q_ = q;
        k_ = k;
        v_ = v;
    }

    /// Puts numbers of another type at the same places. Quantised ones may be any bytes that are not NaN.
    void store_in(element_type type) {
        const bool is_half = type == element_type::f16 || type == element_type::bf16;
        for (const float value : memory_) {
            halves_.push_back(type == element_type::f16    ? tilewise::float16(value).bits
                              : type == element_type::bf16 ? tilewise::bfloat16(value).bits
                                                           : std::uint16_t{0x2c31});
        }
        const tilewise::element_block block = tilewise::block_of(type);
        for (const_tensor* view : {&q_, &k_, &v_}) {
            if (view == &q_ && !is_half) { continue; }
            const std::int64_t place = static_cast<const float*>(view->data) - memory_.data();
            view->data =
                reinterpret_cast<const std::byte*>(halves_.data()) + place / block.elements * block.bytes;
            view->type = type;
            if (!is_half && block.elements == 1) {
                *view = tilewise::with_scales(*view, memory_.data(), tilewise::scales_per::token);
            }
        }
    }

    void set_mask(const shape& s) {
        const std::array<std::int64_t, 4> extents = {1, 1, s.tokens, s.tokens};
        const std::array<std::int64_t, 4> strides = {0, 0, s.tokens, 1};
        switch (s.mask) {
            case masking::no_mask:
                break;
            case masking::causal:
                how_.causal = tilewise::causal::bottom_right;
                break;
            case masking::window_1024:
                how_.causal = tilewise::causal::bottom_right;
                how_.window_left = 1023;
                break;
            case masking::all_true_mask:
                mask_.assign(count(s.tokens * s.tokens), 1);
                how_.mask = const_tensor(mask_.data(), tilewise::element_type::boolean, extents, strides);
                break;
            case masking::bias:
                bias_.assign(count(s.tokens * s.tokens), 0.01F);
                how_.bias = const_tensor(bias_.data(), tilewise::element_type::f32, extents, strides);
                break;
            case masking::soft_cap:
                how_.soft_cap = 30.0F;
                break;
            case masking::alibi:
                how_.alibi_slopes = slopes_;
                break;
        }
    }

    std::vector<float> memory_;
    std::vector<std::uint16_t> halves_;
    std::vector<float> out_;
    std::vector<std::uint8_t> mask_;
    std::vector<float> bias_;
    std::vector<float> slopes_ = {0.01F};
    const_tensor q_, k_, v_;
    tilewise::tensor result_;
    tilewise::options how_;
};

/// What the timed calls of one benchmark add up to.
class series {
public:
    series(double flops, int threads) : flops_(flops), threads_(threads) {}

    void add(double cpu_seconds, double peak_before, double peak_after) {
        const double rate = 1e-9 * flops_ / cpu_seconds;
        rates_.push_back(rate);
        fractions_.push_back(rate / std::max(peak_before, peak_after));
        peaks_.push_back(peak_before);
        peaks_.push_back(peak_after);
    }

    void report(benchmark::State& state) const {
        namespace measure = tilewise::measure;
        const double rate = measure::largest(rates_);
        const double peak = measure::largest(peaks_);
        const double spread = 1 - measure::smallest(peaks_) / peak;
        state.counters["GFLOP/s"] = rate * threads_;
        state.counters["fraction_best"] = rate / peak;
        state.counters["fraction_median"] = measure::median(fractions_);
        const std::string peak_text = "peak " + std::to_string(static_cast<int>(peak)) + " GFLOP/s per core";
        const std::string percent = std::to_string(static_cast<int>(100 * spread)) + " %";
        state.SetLabel(spread > 0.1 ? peak_text + ", UNSTEADY: spread " + percent : peak_text);
    }

private:
    double flops_;
    int threads_;
    std::vector<double> rates_;  ///< of one core, GFLOP/s
    std::vector<double> fractions_;
    std::vector<double> peaks_;
};

void prefill(benchmark::State& state, const shape& s) {
    tilewise::force_isa(s.isa);
    const problem p(s);
    const tilewise::plan plan = p.plan();
    series all(plan.flops, plan.threads);
    double before = tilewise::measure::fma_peak_gflops(s.isa);
    for (auto unused : state) {
        static_cast<void>(unused);
        const tilewise::measure::stopwatch watch(plan.threads);
        p.run();
        const double cpu = watch.elapsed().cpu;
        const double after = tilewise::measure::fma_peak_gflops(s.isa);
        all.add(cpu, before, after);
        before = after;
        state.SetIterationTime(cpu);
    }
    all.report(state);
    state.counters["scratch"] = static_cast<double>(plan.scratch_bytes);
}

/// One head of 16 tokens: what a call costs beside its arithmetic.
void small_call(benchmark::State& state, tilewise::isa which) {
    tilewise::force_isa(which);
    const problem p({which, 16, 64, masking::causal, layout::bhsd, 0});
    for (auto unused : state) {
        static_cast<void>(unused);
        p.run();
    }
}

/// Another thread keeps a core busy: two threads should still not be slower than one.
void competing(benchmark::State& state, const shape& s) {
    tilewise::force_isa(s.isa);
    const problem p(s);
    std::atomic<bool> stop = false;
    std::thread busy([&stop] {
        while (!stop.load(std::memory_order_relaxed)) {}
    });
    for (auto unused : state) {
        static_cast<void>(unused);
        p.run();
    }
    stop = true;
    busy.join();
}

std::string name_of(const char* group, const shape& s) {
    return std::string(group) + "/" + std::string(tilewise::isa_name(s.isa)) +
           "/d:" + std::to_string(s.head_dim) + "/T:" + std::to_string(s.tokens) + "/" + name_of(s.mask) +
           "/" + name_of(s.rows) + "/" + name_of(s.type) + "/threads:" + std::to_string(s.threads);
}

void register_prefill(const shape& s) {
    benchmark::RegisterBenchmark(name_of("prefill", s).c_str(), prefill, s)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
}

void register_isa(tilewise::isa which) {
    // SSE2 emulates its fused multiply-add: slow, and not what anyone runs for speed.
    const bool slow = which == tilewise::isa::sse2;
    const std::vector<std::int64_t> lengths =
        slow ? std::vector<std::int64_t>{2048} : std::vector<std::int64_t>{2048, 4096, 8192, 16384, 32768};
    for (const std::int64_t head_dim : {64, 128}) {
        for (const masking mask : {masking::no_mask, masking::causal}) {
            for (const int threads : {1, 2}) {
                for (const std::int64_t tokens : lengths) {
                    register_prefill({which, tokens, head_dim, mask, layout::bhsd, threads});
                }
                for (const layout rows : {layout::bshd_32_heads, layout::packed_qkv, layout::sliced}) {
                    if (!slow) { register_prefill({which, 4096, head_dim, mask, rows, threads}); }
                }
            }
        }
    }
    for (const std::int64_t head_dim : {64, 128}) {
        for (const auto& [type, name] : named_types) {
            if (type == element_type::f32) { continue; }
            register_prefill({which, slow ? 1024 : 4096, head_dim, masking::no_mask, layout::bhsd, 1, type});
        }
        for (const masking mask :
             {masking::all_true_mask, masking::bias, masking::soft_cap, masking::alibi}) {
            register_prefill({which, slow ? 1024 : 4096, head_dim, mask, layout::bhsd, 1});
        }
        if (!slow) { register_prefill({which, 32768, head_dim, masking::window_1024, layout::bhsd, 1}); }
    }
    const std::string name(tilewise::isa_name(which));
    benchmark::RegisterBenchmark(("small_call/" + name + "/d:64/T:16").c_str(), small_call, which)
        ->Unit(benchmark::kMicrosecond);
    for (const int threads : {1, 2}) {
        const shape s{which, slow ? 1024 : 4096, 64, masking::causal, layout::bhsd, threads};
        benchmark::RegisterBenchmark(name_of("competing", s).c_str(), competing, s)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
    }
}

}  // namespace

int main(int argc, char** argv) {
    for (const tilewise::isa which : tilewise::available_isas()) { register_isa(which); }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 2; }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

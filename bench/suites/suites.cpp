#include "suites.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include <tilewise/isa.hpp>

#include "problem.hpp"
#include "series.hpp"

namespace tilewise::suites {
namespace {

/// The body of a row; skips it, with a message, if there is too little memory.
void time_problem(benchmark::State& state, const shape& s) {
    force_isa(s.isa);
    try {
        const std::shared_ptr<const problem> p = problem_of(s);
        const plan planned = p->plan();
        if (planned.arithmetic != s.arithmetic) {
            state.SkipWithError("this machine has no bf16 products");
            return;
        }
        time_call(state, {[&] { p->run(); }, p->least_work(), planned.isa, planned.arithmetic,
                          planned.threads, planned.scratch_bytes});
    } catch (const std::bad_alloc&) { state.SkipWithError("not enough memory for this shape"); }
}

void time_competing(benchmark::State& state, const shape& s) {
    force_isa(s.isa);
    const std::shared_ptr<const problem> p = problem_of(s);
    std::atomic<bool> stop = false;
    std::thread busy([&stop] {
        while (!stop.load(std::memory_order_relaxed)) {}
    });
    for (auto unused : state) {
        static_cast<void>(unused);
        p->run();
    }
    stop = true;
    busy.join();
}

}  // namespace

void registry::add(const std::string& name, const shape& s, bool usual) const {
    if (!usual && !everything_) { return; }
    auto* const row = benchmark::RegisterBenchmark(name.c_str(), time_problem, s);
    row->Unit(benchmark::kMicrosecond);
}

void registry::add_competing(const std::string& name, const shape& s) const {
    if (!everything_) { return; }
    auto* const row = benchmark::RegisterBenchmark(name.c_str(), time_competing, s);
    row->Unit(benchmark::kMicrosecond)->UseRealTime();
}

isa fastest() { return available_isas().back(); }

std::string isa_prefix(isa which) { return std::string(isa_name(which)) + "/"; }

const std::vector<element_type>& key_types() {
    static const std::vector<element_type> types = {
        element_type::f32,  element_type::f16, element_type::bf16, element_type::q8_0,
        element_type::q4_0, element_type::i8,  element_type::e4m3, element_type::e5m2};
    return types;
}

element_type query_type_for(element_type keys) {
    return keys == element_type::f16 || keys == element_type::bf16 ? keys : element_type::f32;
}

std::string length_name(std::int64_t tokens) {
    return tokens >= 1024 && tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "k"
                                                : std::to_string(tokens);
}

}  // namespace tilewise::suites

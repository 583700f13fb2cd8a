#include "suites.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>

#include <tilewise/isa.hpp>

#include "busy_process.hpp"
#include "child_process.hpp"
#include "fma_peak.hpp"
#include "machine.hpp"
#include "problem.hpp"
#include "series.hpp"

namespace tilewise::suites {
namespace {

/// What peak_memory_of says in a process of its own; asked once, as a benchmark runs several times.
std::size_t peak_memory_elsewhere(const std::string& name) {
    static std::map<std::string, std::size_t> known;
    const auto [found, is_new] = known.try_emplace(name, 0);
    if (is_new) {
        const measure::child_result child =
            measure::run_child(measure::own_path(""), {std::string(peak_memory_option) + name});
        if (child.exit_code == 0) { found->second = std::strtoull(child.output.c_str(), nullptr, 10); }
    }
    return found->second;
}

/// The body of a row; skips it, with a message, if there is too little memory.
void time_row(benchmark::State& state, const row& r) {
    const shape& s = r.what;
    force_isa(s.isa);
    try {
        const std::shared_ptr<const problem> p = problem_of(s);
        const plan planned = p->plan();
        if (planned.arithmetic != s.arithmetic) {
            state.SkipWithError("this machine has no bf16 products");
            return;
        }
        std::optional<measure::busy_process> busy;
        if (r.competing) { busy.emplace(); }
        time_call(state, {[&] { p->run(); }, p->least_work(), planned.isa,
                          measure::numbers_of(s.q_type, planned.arithmetic), planned.threads,
                          planned.scratch_bytes});
        busy.reset();
        const std::size_t peak_memory = peak_memory_elsewhere(r.name);
        if (peak_memory > 0) { state.counters["peak_memory"] = static_cast<double>(peak_memory); }
    } catch (const std::bad_alloc&) {
        state.SkipWithError("not enough memory for this shape");
    } catch (const std::invalid_argument& error) {  // such as f64, in a build without
        state.SkipWithError(error.what());
    }
}

}  // namespace

void row_list::register_rows(bool all) const {
    for (const row& r : rows_) {
        if (!r.usual && !all) { continue; }
        auto* const made = benchmark::RegisterBenchmark(r.name.c_str(), time_row, r);
        made->Unit(benchmark::kMicrosecond);
        if (r.competing) { made->UseRealTime(); }
    }
}

std::size_t row_list::peak_memory_of(std::string_view name) const {
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const row& r) { return r.name == name; });
    if (found == rows_.end()) { return 0; }
    force_isa(found->what.isa);
    problem(found->what).run();
    return measure::peak_resident_memory();
}

isa fastest() { return available_isas().back(); }

std::string isa_prefix(isa which) { return std::string(isa_name(which)) + "/"; }

const std::vector<element_type>& key_types() {
    static const std::vector<element_type> types = {
        element_type::f32,  element_type::f64, element_type::f16,  element_type::bf16, element_type::q8_0,
        element_type::q4_0, element_type::i8,  element_type::e4m3, element_type::e5m2};
    return types;
}

element_type query_type_for(element_type keys) {
    const bool alike = keys == element_type::f64 || keys == element_type::f16 || keys == element_type::bf16;
    return alike ? keys : element_type::f32;
}

std::vector<shape> in_all_types(shape s) {
    std::vector<shape> made;
    for (const element_type type : key_types()) {
        s.kv_type = type;
        s.q_type = query_type_for(type);
        made.push_back(s);
    }
    s.kv_type = s.q_type = element_type::bf16;
    s.arithmetic = arithmetic::fastest;
    made.push_back(s);
    return made;
}

std::string length_name(std::int64_t tokens) {
    return tokens >= 1024 && tokens % 1024 == 0 ? std::to_string(tokens / 1024) + "k"
                                                : std::to_string(tokens);
}

}  // namespace tilewise::suites

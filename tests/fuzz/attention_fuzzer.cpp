// Any call that can be described gives the bits of the reference, on every instruction set, with any number
// of threads and any tiles; or all entry points refuse it. Nothing else is written, and no input. With
// arithmetic::fastest, they are the exact ones wherever the plan does not promise that arithmetic.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <tilewise/tilewise.hpp>
#include <vector>

#include "agreement.hpp"
#include "fuzz_call.hpp"

using namespace tilewise_tests;

namespace {

struct expected {
    std::string refusal;
    std::deque<result_memory> results;
};

/// Runs the reference, and checks that it stays within the results.
expected expect(fuzz_call& call, tilewise::arithmetic which) {
    tilewise::options how = call.how;
    how.arithmetic = which;
    for (result_memory& result : call.memory.results()) { result.clear(); }
    const std::string refusal =
        refusal_of([&] { tilewise::reference::attention(call.q, call.k, call.v, call.out, how); });
    for (const result_memory& result : call.memory.results()) {
        if (!refusal.empty() && !result.is_clear()) {
            report(result.name + " was written by a refused call");
        }
        if (!result.are_gaps_clear()) { report("the reference wrote beside " + result.name); }
    }
    return {refusal, call.memory.results()};
}

void check_results(const fuzz_call& call, const std::deque<result_memory>& want) {
    for (std::size_t n = 0; n < want.size(); ++n) {
        if (call.memory.results()[n].bytes != want[n].bytes) {
            report(want[n].name + " differs from the reference's");
        }
    }
}

/// A workspace that is too small is refused by the tiled computation only, and nothing is written.
bool was_too_small(const setting& run, const fuzz_call& call, const std::string& refusal) {
    if (run.workspace_percent == 0 || run.workspace_percent == 100) { return false; }
    if (refusal.rfind("tilewise: workspace: ", 0) != 0) { return false; }
    for (const result_memory& result : call.memory.results()) {
        if (!result.is_clear()) { report(result.name + " was written without a workspace"); }
    }
    return true;
}

/// arithmetic::fastest is promised only to calls that ask for it with all of q, k and v in bf16.
void check_arithmetic(const fuzz_call& call, tilewise::arithmetic planned) {
    const auto is_bf16 = [](const tilewise::const_tensor& view) {
        return view.type == tilewise::element_type::bf16;
    };
    const bool is_for_it = call.how.arithmetic == tilewise::arithmetic::fastest && is_bf16(call.q) &&
                           is_bf16(call.k) && is_bf16(call.v);
    if (planned != tilewise::arithmetic::exact && !is_for_it) { report("a plan is not exact"); }
}

void compare(fuzz_call& call, const setting& run, const expected& exact) {
    tilewise::options how = with(call.how, run);
    tilewise::plan plan;
    const std::string planned =
        refusal_of([&] { plan = tilewise::plan_attention(call.q, call.k, call.v, call.out, how); });
    check_arithmetic(call, plan.arithmetic);
    const bool is_exact = plan.arithmetic == tilewise::arithmetic::exact;
    const expected want = is_exact ? exact : expect(call, plan.arithmetic);
    if (planned != want.refusal) {
        report("the plan says '" + planned + "', the reference '" + want.refusal + "'");
    }
    const std::size_t percent = run.workspace_percent;
    std::vector<std::byte> workspace(percent == 0 ? 0 : plan.scratch_bytes * percent / 100 + 63);
    how.workspace = workspace;
    for (result_memory& result : call.memory.results()) { result.clear(); }
    const std::string refusal = compute(run.by, {call.q, call.k, call.v, call.out}, how);
    if (was_too_small(run, call, refusal)) { return; }
    if (refusal != want.refusal) {
        report("attention says '" + refusal + "', the reference '" + want.refusal + "'");
    }
    check_results(call, want.results);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    byte_source bytes(data, size);
    fuzz_call call(bytes);
    const std::deque<std::vector<std::byte>> inputs = call.memory.inputs();
    const expected exact = expect(call, tilewise::arithmetic::exact);
    if (call.must_be_refused() && exact.refusal.empty()) { report("what f64 does not have was accepted"); }
    for_each_isa([&](const std::string&) { compare(call, pick_setting(bytes), exact); });
    if (call.memory.inputs() != inputs) { report("an input was written"); }
    return 0;
}

// Whatever a caller describes, attention, its reference and its plan agree on whether it is valid, from C++
// and from C. What is refused writes nothing; what is accepted is sound, and gives the bits of the reference.

#include <cstddef>
#include <cstdint>
#include <string>
#include <tilewise/tilewise.hpp>
#include <vector>

#include "agreement.hpp"
#include "hostile.hpp"
#include "hostile_c.hpp"
#include "hostile_call.hpp"

using namespace tilewise_tests;

namespace {

std::string plan(const hostile_call& call) {
    return refusal_of(
        [&] { static_cast<void>(tilewise::plan_attention(call.q, call.k, call.v, call.out, call.how)); });
}

std::string compute_naively(const hostile_call& call) {
    return refusal_of([&] { tilewise::reference::attention(call.q, call.k, call.v, call.out, call.how); });
}

std::string compute(entry_point by, const hostile_call& call) {
    return compute(by, {call.q, call.k, call.v, call.out}, call.how);
}

/// What a status says is cut off where it is longer than this.
constexpr std::size_t longest_message = 511;

void check_refused(const hostile_call& call, const std::string& reason, const arena& memory) {
    const std::vector<std::byte> before = memory.bytes();
    for (const entry_point by : all_entry_points) {
        const std::string said = compute(by, call);
        // From C, types and enumerators are checked first.
        if (by == entry_point::c ? said.empty() : said != reason.substr(0, longest_message)) {
            report("the plan says '" + reason + "', attention '" + said + "'");
        }
    }
    const bool concerns_workspace = reason.rfind("tilewise: workspace: ", 0) == 0;  // the reference has none
    if (!concerns_workspace && compute_naively(call) != reason) {
        report("the plan is refused, the reference is not: " + reason);
    }
    if (memory.bytes() != before) { report("a refused call wrote something: " + reason); }
}

/// What memory is after the reference, with the arithmetic of the active instruction set.
std::vector<std::byte> expect(const hostile_call& call, arena& memory, const std::vector<std::byte>& before) {
    memory.restore(before);
    if (!compute_naively(call).empty()) { report("the plan is accepted, the reference refuses"); }
    return memory.bytes();
}

void check_accepted(const hostile_call& call, arena& memory) {
    if (call.misuses_f64()) { report("f64 beside other types was accepted"); }
    const std::string flaw = flaw_of(memory, call.read(), call.written());
    if (!flaw.empty()) { report(flaw); }
    if (!call.can_run(memory)) { return; }
    const std::vector<std::byte> before = memory.bytes();
    std::vector<std::byte> want = expect(call, memory, before);
    for_each_isa([&](const std::string& name) {
        if (call.how.arithmetic == tilewise::arithmetic::fastest) { want = expect(call, memory, before); }
        for (const entry_point by : {entry_point::throwing, entry_point::c}) {
            memory.restore(before);
            // Another instruction set may need more scratch memory than the workspace has; and in C, types
            // of absent views are checked, too.
            const std::string refusal = compute(by, call);
            const bool may_refuse = by == entry_point::c || !call.how.workspace.empty();
            if (!refusal.empty() && (!may_refuse || memory.bytes() != before)) {
                report("the plan is accepted, attention refuses: " + refusal);
            }
            if (refusal.empty() && memory.bytes() != want) {
                report("other bits than the reference's on " + name);
            }
        }
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static arena memory;
    byte_source bytes(data, size);
    const hostile_call call(bytes, memory);
    if (call.has_too_many_tasks() || !call.can_plan(memory)) { return 0; }
    const std::string reason = plan(call);
    if (reason.empty()) {
        check_accepted(call, memory);
    } else {
        check_refused(call, reason, memory);
    }
    check_c(call, bytes, memory);
    return 0;
}

#include "agreement.hpp"

#include <array>
#include <thread>
#include <tilewise/isa.hpp>
#include <vector>

namespace tilewise_tests {
namespace {

using body_function = void (*)(void*, std::size_t);

void run_none(void*, int, body_function, void*) {}

void run_backwards(void*, int threads, body_function body, void* context) {
    for (auto n = static_cast<std::size_t>(threads); n-- > 0;) { body(context, n); }
}

void run_some(void*, int threads, body_function body, void* context) {
    for (std::size_t n = 1; n < static_cast<std::size_t>(threads); n += 2) { body(context, n); }
}

void run_threads(void*, int threads, body_function body, void* context) {
    std::vector<std::thread> running;
    for (std::size_t n = 0; n < static_cast<std::size_t>(threads); ++n) {
        running.emplace_back(body, context, n);
    }
    for (std::thread& one : running) { one.join(); }
}

}  // namespace

setting pick_setting(byte_source& bytes) {
    constexpr std::array<std::size_t, 4> budgets = {0, 1, 40'000, 100'000};
    constexpr std::array pools = {host_pool::busy, host_pool::backwards, host_pool::partial,
                                  host_pool::concurrent};
    constexpr std::array<std::size_t, 4> percents = {100, 60, 20, 5};
    setting made{};
    made.threads = static_cast<int>(bytes.between(0, 4));
    made.scratch_budget = bytes.pick(budgets);
    if (bytes.one_in(4)) { made.pool = bytes.pick(pools); }
    if (bytes.one_in(3)) { made.by = bytes.one_in(2) ? entry_point::status : entry_point::c; }
    if (bytes.one_in(3)) { made.workspace_percent = bytes.pick(percents); }
    return made;
}

tilewise::options with(tilewise::options how, const setting& run) {
    how.threads = run.threads;
    how.scratch_budget = run.scratch_budget;
    if (run.pool == host_pool::none) { return how; }
    constexpr std::array functions = {run_none, run_none, run_backwards, run_some, run_threads};
    how.threads = run.threads == 0 ? 5 : run.threads;
    how.parallel_for = {functions[static_cast<std::size_t>(run.pool)], nullptr};
    return how;
}

void for_each_isa(const std::function<void(const std::string& name)>& run) {
    for (const tilewise::isa which : tilewise::available_isas()) {
        tilewise::force_isa(which);
        run(std::string(tilewise::isa_name(which)));
    }
    tilewise::unforce_isa();
}

}  // namespace tilewise_tests

// A program compiled without exceptions and run-time types uses all headers, and gets errors as values.

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <tilewise/tilewise.hpp>
#include <vector>

#if defined(__cpp_exceptions) || defined(__GXX_RTTI)
#    error "this test is to be compiled without both"
#endif

namespace {

int failures = 0;

void check(bool is_right, const char* what) {
    if (is_right) { return; }
    std::printf("failed: %s\n", what);
    ++failures;
}

}  // namespace

int main() {
    using tilewise::axis;
    const std::vector<float> q{1, 0, 0, 1};
    const std::vector<float> k{1, 0, 1, 1};
    const std::vector<float> v{1, 2, 3, 4};
    std::vector<float> out(4);
    const auto q_view = tilewise::bhsd(std::span(q), 1, 1, 2, 2).slice(axis::tokens, 0, 2);
    const auto k_view = tilewise::bhsd(k.data(), 1, 1, 2, 2);
    const auto v_view = tilewise::bhsd(v.data(), 1, 1, 2, 2);
    const auto out_view = tilewise::bhsd(out.data(), 1, 1, 2, 2);

    tilewise::options how{.threads = 1};
    tilewise::plan plan;
    check(tilewise::try_plan_attention(q_view, k_view, v_view, out_view, how, plan).is_ok(), "plan");
    std::vector<std::byte> workspace(plan.scratch_bytes + 63);
    how.workspace = workspace;
    check(tilewise::try_attention(q_view, k_view, v_view, out_view, how).is_ok(), "attention");
    check(out[0] == 2.0F && out[1] == 3.0F, "values");

    how.threads = -1;
    const tilewise::status refused = tilewise::try_attention(q_view, k_view, v_view, out_view, how);
    check(refused.code == tilewise::status_code::invalid_argument, "code of a wrong argument");
    check(std::strstr(refused.message, "threads: -1 given") != nullptr, "message");
    check(!tilewise::try_plan_attention(q_view, k_view, v_view, out_view, how, plan).is_ok(), "wrong plan");
    check(plan.threads == 1, "the plan stays as it was");
    return failures;
}

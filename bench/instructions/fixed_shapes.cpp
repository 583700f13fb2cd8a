// Runs one of a few fixed shapes, for counting instructions: what is counted is tilewise_counted_call alone.
// Without arguments, it lists the shapes.

#include <array>
#include <cstdio>
#include <string_view>

#include "../suites/problem.hpp"

using namespace tilewise;
using suites::masking;
using suites::shape;

extern "C" __attribute__((noinline)) void tilewise_counted_call(const suites::problem& p) { p.run(); }

namespace {

struct fixed_shape {
    const char* name;
    std::int64_t heads, kv_heads, queries, keys, dim;
    element_type q_type, kv_type;
    masking mask;
};

constexpr auto f32 = element_type::f32;
constexpr std::array shapes = {
    fixed_shape{"prefill_d64_causal", 2, 1, 300, 300, 64, f32, f32, masking::causal},
    fixed_shape{"prefill_d128_bf16", 1, 1, 200, 300, 128, element_type::bf16, element_type::bf16,
                masking::no_mask},
    fixed_shape{"prefill_d64_bias", 1, 1, 200, 200, 64, f32, f32, masking::bias},
    fixed_shape{"decode_d128", 8, 2, 1, 2000, 128, f32, f32, masking::no_mask},
    fixed_shape{"decode_d128_q8_0", 8, 2, 1, 2000, 128, f32, element_type::q8_0, masking::no_mask},
#ifdef TILEWISE_HAVE_F64
    fixed_shape{"prefill_d64_f64", 1, 1, 100, 200, 64, element_type::f64, element_type::f64,
                masking::no_mask},
    fixed_shape{"decode_d64_f64", 4, 2, 1, 1000, 64, element_type::f64, element_type::f64, masking::no_mask},
#endif
    fixed_shape{"small_call", 1, 1, 16, 16, 64, f32, f32, masking::causal}};

int run(const fixed_shape& of) {
    shape s;
    s.isa = active_isa();
    s.heads = of.heads;
    s.kv_heads = of.kv_heads;
    s.queries = of.queries;
    s.keys = of.keys;
    s.head_dim = s.value_dim = of.dim;
    s.q_type = of.q_type;
    s.kv_type = of.kv_type;
    s.mask = of.mask;
    s.scratch_budget = 256U << 10U;  // or the size of this machine's cache would decide
    const suites::problem p(s);
    p.run();  // the first call also starts the threads' library and binds symbols
    tilewise_counted_call(p);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 1) {
        for (const fixed_shape& one : shapes) { std::puts(one.name); }
        return 0;
    }
    for (const fixed_shape& one : shapes) {
        if (std::string_view(argv[1]) == one.name) { return run(one); }
    }
    std::fprintf(stderr, "no shape is called '%s'\n", argv[1]);
    return 2;
}

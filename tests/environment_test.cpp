// The caller's world: rounding mode, flush-to-zero and exception masks neither change the results nor are
// changed, and calls from several threads at once do not disturb each other.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cases.hpp"

#if defined(__x86_64__)
#    include <immintrin.h>
#endif

using namespace tilewise_tests;

// Runs a function on all threads of an OpenMP team. Not there if the library was built without OpenMP.
extern "C" __attribute__((weak)) void GOMP_parallel(void (*body)(void*), void* data, unsigned threads,
                                                    unsigned flags);

namespace {

// The control register of SIMD arithmetic, without the flags of exceptions that have occurred.
std::uint64_t control_register() {
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fU;
#elif defined(__aarch64__)
    std::uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
#endif
}

void set_control_register(std::uint64_t value) {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(value));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
#endif
}

#if defined(__x86_64__)
constexpr std::uint64_t flush_to_zero = 0x8040;  // FTZ and DAZ
#elif defined(__aarch64__)
constexpr std::uint64_t flush_to_zero = std::uint64_t{1} << 24U;  // FZ
#endif

/// A rounding mode, with or without flush-to-zero, for the lifetime of the object.
class unusual_environment {
public:
    unusual_environment(int rounding, bool flushes)
        : before_(control_register()), rounding_(std::fegetround()) {
        std::fesetround(rounding);
        if (flushes) { set_control_register(control_register() | flush_to_zero); }
        set_ = control_register();
    }
    ~unusual_environment() {
        std::fesetround(rounding_);
        set_control_register(before_);
    }
    unusual_environment(const unusual_environment&) = delete;
    unusual_environment& operator=(const unusual_environment&) = delete;

    [[nodiscard]] bool is_as_set() const { return control_register() == set_; }

private:
    std::uint64_t before_;
    int rounding_;
    std::uint64_t set_ = 0;
};

/// Cases whose bits depend on the environment if anything of theirs is computed in it.
struct sensitive_case {
    attention_case which;
    inputs given;
};

std::vector<sensitive_case> sensitive_cases() {
    std::vector<sensitive_case> made;
    const auto add = [&](attention_case which, float q_size, float v_size) {
        which.seed = made.size() + 1;
        made.push_back({which, make_inputs(which)});
        made.back().given.q.fill_normal(which.seed + 70, q_size);
        made.back().given.v.fill_normal(which.seed + 80, v_size);
    };
    // Default scales that are not exact, and scores from small to large.
    add({.heads = 3, .kv_heads = 1, .queries = 90, .keys = 300, .key_dim = 80, .value_dim = 33}, 1.0F, 1.0F);
    add({.queries = 60, .keys = 140, .key_dim = 3, .value_dim = 5, .causal = tilewise::causal::bottom_right},
        30.0F, 1.0F);
    add({.queries = 2, .keys = 500, .key_dim = 11, .value_dim = 7}, 1.0F, 1.0F);
    // A scale whose product with log2 e is rounded, and negative and subnormal scales.
    add({.queries = 20, .keys = 40, .key_dim = 9, .value_dim = 4, .scale = 0.1F}, 1.0F, 1.0F);
    add({.queries = 20, .keys = 40, .key_dim = 9, .value_dim = 4, .scale = -0.7F}, 1.0F, 1.0F);
    add({.queries = 20, .keys = 40, .key_dim = 9, .value_dim = 4, .scale = 3e-39F}, 1e38F, 1.0F);
    // Subnormal queries and values.
    add({.queries = 50,
         .keys = 130,
         .key_dim = 16,
         .value_dim = 4,
         .scale = std::numeric_limits<float>::max()},
        1e-39F, 1.0F);
    add({.queries = 50, .keys = 130, .key_dim = 16, .value_dim = 4}, 1.0F, 1e-40F);
    return made;
}

}  // namespace

TEST_CASE("the caller's rounding mode and flush-to-zero change nothing, and are not changed") {
    for (const sensitive_case& one : sensitive_cases()) {
        const results want = naive(one.which, one.given);
        for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
            for (const bool flushes : {false, true}) {
                for (const int threads : {0, 1, 3}) {  // 0: the reference
                    results got;
                    bool is_as_set = false;
                    {
                        const unusual_environment unusual(rounding, flushes);
                        got = threads == 0 ? naive(one.which, one.given)
                                           : tiled(one.which, one.given, {.threads = threads});
                        is_as_set = unusual.is_as_set();
                    }
                    INFO(show(one.which));
                    INFO("rounding mode ", rounding, ", flush to zero ", flushes, ", threads ", threads);
                    CHECK(is_as_set);
                    CHECK(first_difference(got, want) == "");
                }
            }
        }
    }
}

TEST_CASE("threads of the caller's own OpenMP teams keep their environment, and it changes nothing") {
    if (GOMP_parallel == nullptr) { return; }
    constexpr unsigned team = 3;
    static constexpr int rounding = FE_DOWNWARD;
    // The calling thread is new, so that its team is, too.
    std::atomic<int> changed = 0;
    std::vector<std::string> differences;
    std::thread caller([&] {
        GOMP_parallel(
            [](void*) {
                std::fesetround(rounding);
                set_control_register(control_register() | flush_to_zero);
            },
            nullptr, team, 0);
        std::fesetround(FE_TONEAREST);
        for (const sensitive_case& one : sensitive_cases()) {
            const results got = tiled(one.which, one.given, {.threads = team});
            differences.push_back(first_difference(got.out.view(), naive(one.which, one.given).out.view()));
        }
        std::fesetround(rounding);
        GOMP_parallel(
            [](void* data) {
                if (std::fegetround() != rounding) { ++*static_cast<std::atomic<int>*>(data); }
            },
            &changed, team, 0);
    });
    caller.join();
    for (const std::string& difference : differences) { CHECK(difference == ""); }
    CHECK(changed == 0);
}

TEST_CASE("a refused call does not change the environment either") {
    const unusual_environment unusual(FE_UPWARD, true);
    bool refused = false;
    try {
        float value = 1.0F;
        const auto view = tilewise::bhsd(&value, 1, 1, 1, 1);
        tilewise::attention(view, view, view, view, {.scale = 1.0F});
    } catch (const std::invalid_argument&) { refused = true; }
    const bool is_as_set = unusual.is_as_set();
    CHECK(refused);
    CHECK(is_as_set);
}

#if defined(__x86_64__)
TEST_CASE("NaN, infinities and division by zero do not trap, even if the caller unmasks such exceptions") {
    const attention_case which{.queries = 50, .keys = 200, .causal = tilewise::causal::bottom_right};
    const inputs given = make_inputs(which);
    given.k.at(0, 0, 3, 3) = infinity;
    given.k.at(0, 0, 160, 3) = from_bits(0x7f800001U);
    given.v.at(0, 0, 170, 3) = quiet_nan;
    const results want = naive(which, given);
    const std::uint64_t before = control_register();
    constexpr std::uint64_t invalid_zero_overflow = 0x680;
    set_control_register(before & ~invalid_zero_overflow);
    const results got = tiled(which, given, {.threads = 2});
    const bool is_as_set = control_register() == (before & ~invalid_zero_overflow);
    set_control_register(before);
    CHECK(is_as_set);
    CHECK(first_difference(got.out.view(), want.out.view()) == "");
}
#endif

TEST_CASE("calls from the threads of a pool agree with calls one by one") {
    std::vector<attention_case> cases;
    for (std::int64_t number = 0; number < 24; ++number) {
        cases.push_back({.heads = 2,
                         .kv_heads = 1 + number % 2,
                         .queries = 10 + 17 * (number % 5),
                         .keys = 50 + 31 * number,
                         .key_dim = 16 + 8 * (number % 3),
                         .value_dim = 24,
                         .causal = all_causal[static_cast<std::size_t>(number % 3)],
                         .seed = static_cast<std::uint64_t>(number) + 1});
    }
    std::vector<inputs> given;
    std::vector<results> want;
    for (const attention_case& which : cases) {
        given.push_back(make_inputs(which));
        want.push_back(naive(which, given.back()));
    }
    for (const int threads_of_a_call : {1, 2, 0}) {
        std::atomic<std::size_t> next = 0;
        std::atomic<int> differences = 0;
        const auto work = [&] {
            for (std::size_t task = next++; task < 4 * cases.size(); task = next++) {
                const std::size_t number = task % cases.size();
                const results got = tiled(cases[number], given[number], {.threads = threads_of_a_call});
                if (!first_difference(got, want[number]).empty()) { ++differences; }
            }
        };
        std::vector<std::thread> pool;
        for (int thread = 0; thread < 4; ++thread) { pool.emplace_back(work); }
        for (std::thread& thread : pool) { thread.join(); }
        CHECK(differences == 0);
    }
}

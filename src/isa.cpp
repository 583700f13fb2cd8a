// What the CPU and its operating system can run, and which kernels are active: the one file that knows
// the CPU.

#include <tilewise/isa.hpp>

#include <array>
#include <atomic>
#include <cstdlib>

#include "cpu.hpp"
#include "errors.hpp"
#include "kernels.hpp"

#if defined(__x86_64__)
#    include <cpuid.h>
#endif
#if defined(__linux__)
#    include <sys/auxv.h>
#    include <unistd.h>
#endif

// One table per instruction set and numbers that kernels are compiled for, in a namespace of its own.
#define X(isa, numbers, name)                      \
    namespace tilewise::kernels::name {            \
    extern const tilewise::kernels::table kernels; \
    }
TILEWISE_TABLES
#undef X

namespace tilewise {

namespace {

constexpr std::array<std::string_view, 4> names = {"sse2", "avx2", "avx512", "neon"};

const kernels::table* compiled_kernels(isa which, numbers with) {
    const std::string_view wanted = isa_name(which);
#define X(isa, computes, name) \
    if (wanted == #isa && with == numbers::computes) { return &kernels::name::kernels; }
    TILEWISE_TABLES
#undef X
    return nullptr;
}

#if defined(__x86_64__)
/// F16C, which clang++ 14 cannot be asked about. The operating system saves its registers if it does AVX2's.
bool has_half_conversions() {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

/// Whether this CPU has the instructions and the operating system saves their registers (the compiler's
/// run-time library checks both, through CPUID and XGETBV).
bool cpu_runs(isa which) {
    switch (which) {
#if defined(__x86_64__)
        case isa::sse2:
            return true;
        case isa::avx2:
            return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                   has_half_conversions();
        case isa::avx512:
            return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512cd") != 0 &&
                   __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                   __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("fma") != 0;
#elif defined(__aarch64__)
        case isa::neon:
            return true;
#endif
        default:
            return false;
    }
}

/// Whether this CPU multiplies pairs of bf16; that it runs the instruction set is known.
bool cpu_multiplies_pairs(isa which) {
    switch (which) {
#if defined(__x86_64__)
        case isa::avx512:
            return __builtin_cpu_supports("avx512bf16") != 0;
#elif defined(__aarch64__) && defined(__linux__)
        case isa::neon: {
            constexpr unsigned long bf16 = 1UL << 14U;  // HWCAP2_BF16, which old headers lack
            return (getauxval(AT_HWCAP2) & bf16) != 0;
        }
#endif
        default:
            return false;
    }
}

/// The instruction sets that have kernels and run here.
struct isa_list {
    std::array<isa, names.size()> all{};
    std::size_t count = 0;

    [[nodiscard]] std::span<const isa> view() const { return std::span(all).first(count); }
};

const isa_list& runnable() {
    static const isa_list found = [] {
        isa_list list;
        for (std::size_t i = 0; i < names.size(); ++i) {
            const auto which = static_cast<isa>(i);
            if (compiled_kernels(which, numbers::f32) != nullptr && cpu_runs(which)) {
                list.all[list.count++] = which;
            }
        }
        return list;
    }();
    return found;
}

bool require_available(isa which, std::string_view source) {
    std::span<const isa> available;
    if (!find_available_isas(available)) { return false; }
    short_text<40> allowed;
    for (const isa one : available) {
        if (one == which) { return true; }
        if (!allowed.empty()) { allowed.add(", "); }
        allowed.add(isa_name(one));
    }
    return refuse(source, ": ", isa_name(which), " given, this machine and build have ", allowed);
}

/// The one that TILEWISE_ISA names, or the best.
bool find_default_isa(isa& which) {
    std::span<const isa> available;
    if (!find_available_isas(available)) { return false; }
    which = available.back();
    const char* const wanted = std::getenv("TILEWISE_ISA");
    return wanted == nullptr || *wanted == '\0' ||
           (find_isa(wanted, which) && require_available(which, "TILEWISE_ISA"));
}

/// The forced instruction set, or -1.
std::atomic<int>& forced() {
    static std::atomic<int> value{-1};
    return value;
}

}  // namespace

std::string_view isa_name(isa which) noexcept {
    const auto index = static_cast<std::size_t>(which);
    return index < names.size() ? names[index] : "unknown";
}

bool find_isa(std::string_view name, isa& which) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] != name) { continue; }
        which = static_cast<isa>(i);
        return true;
    }
    return refuse("isa: '", name, "' given, it must be sse2, avx2, avx512 or neon");
}

bool find_available_isas(std::span<const isa>& available) {
    available = runnable().view();
    if (available.empty()) {
        return refuse("this build has kernels for none of the instruction sets of this CPU");
    }
    return true;
}

bool find_active_isa(isa& which) {
    static std::atomic<int> chosen{-1};  // once, by whom does not matter
    int now = forced().load(std::memory_order_relaxed);
    if (now < 0) { now = chosen.load(std::memory_order_relaxed); }
    if (now >= 0) {
        which = static_cast<isa>(now);
        return true;
    }
    if (!find_default_isa(which)) { return false; }
    chosen.store(static_cast<int>(which), std::memory_order_relaxed);
    return true;
}

bool set_forced_isa(isa which) {
    if (!require_available(which, "isa")) { return false; }
    forced().store(static_cast<int>(which), std::memory_order_relaxed);
    return true;
}

isa isa_from_name(std::string_view name) {
    isa which{};
    raise_unless(status_of(find_isa(name, which)));
    return which;
}

std::span<const isa> available_isas() {
    std::span<const isa> available;
    raise_unless(status_of(find_available_isas(available)));
    return available;
}

isa active_isa() {
    isa which{};
    raise_unless(status_of(find_active_isa(which)));
    return which;
}

void force_isa(isa which) { raise_unless(status_of(set_forced_isa(which))); }

void unforce_isa() noexcept { forced().store(-1, std::memory_order_relaxed); }

std::size_t second_level_cache_bytes() {
    constexpr long unknown = 1024L * 1024L;
#if defined(__linux__) && defined(_SC_LEVEL2_CACHE_SIZE)
    static const long read = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
    static const long read = 0;
#endif
    return static_cast<std::size_t>(read > 0 ? read : unknown);
}

bool has_f64_kernels() {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (compiled_kernels(static_cast<isa>(i), numbers::f64) != nullptr) { return true; }
    }
    return false;
}

bool has_fastest(isa which) {
    return compiled_kernels(which, numbers::bf16) != nullptr && cpu_multiplies_pairs(which);
}

const kernels::table& kernels_of(isa which, numbers with) { return *compiled_kernels(which, with); }

}  // namespace tilewise

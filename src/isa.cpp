// What the CPU and its operating system can run, and which kernels are active: the one file that knows
// the CPU.

#include <tilewise/isa.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "kernels.hpp"

#if defined(__x86_64__)
#    include <cpuid.h>
#endif
#if defined(__linux__)
#    include <unistd.h>
#endif

// One table per compiled instruction set, in its namespace.
#define X(name)                                    \
    namespace tilewise::kernels::name {            \
    extern const tilewise::kernels::table kernels; \
    }
TILEWISE_ISAS
#undef X

namespace tilewise {

namespace {

constexpr std::array<std::string_view, 4> names = {"sse2", "avx2", "avx512", "neon"};

const kernels::table* compiled_kernels(isa which) {
    const std::string_view wanted = isa_name(which);
#define X(name) \
    if (wanted == #name) { return &kernels::name::kernels; }
    TILEWISE_ISAS
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

const std::vector<isa>& runnable() {
    static const std::vector<isa> found = [] {
        std::vector<isa> list;
        for (std::size_t i = 0; i < names.size(); ++i) {
            const auto which = static_cast<isa>(i);
            if (compiled_kernels(which) != nullptr && cpu_runs(which)) { list.push_back(which); }
        }
        if (list.empty()) {
            throw std::invalid_argument(
                "tilewise: this build has kernels for none of the instruction sets of this CPU");
        }
        return list;
    }();
    return found;
}

void require_available(isa which, std::string_view source) {
    std::string allowed;
    for (const isa available : runnable()) {
        if (available == which) { return; }
        allowed += allowed.empty() ? "" : ", ";
        allowed += isa_name(available);
    }
    throw std::invalid_argument("tilewise: " + std::string(source) + ": " + std::string(isa_name(which)) +
                                " given, this machine and build have " + allowed);
}

isa default_isa() {
    const char* const wanted = std::getenv("TILEWISE_ISA");
    if (wanted == nullptr || *wanted == '\0') { return runnable().back(); }
    const isa which = isa_from_name(wanted);
    require_available(which, "TILEWISE_ISA");
    return which;
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

isa isa_from_name(std::string_view name) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) { return static_cast<isa>(i); }
    }
    throw std::invalid_argument("tilewise: isa: '" + std::string(name) +
                                "' given, it must be sse2, avx2, avx512 or neon");
}

std::span<const isa> available_isas() { return runnable(); }

isa active_isa() {
    const int now = forced().load(std::memory_order_relaxed);
    if (now >= 0) { return static_cast<isa>(now); }
    static const isa chosen = default_isa();
    return chosen;
}

void force_isa(isa which) {
    require_available(which, "isa");
    forced().store(static_cast<int>(which), std::memory_order_relaxed);
}

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

const kernels::table& kernels_of(isa which) { return *compiled_kernels(which); }

}  // namespace tilewise

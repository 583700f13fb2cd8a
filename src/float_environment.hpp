// Rounding mode and flush-to-zero, which belong to the caller's thread: set to what the contract needs
// while a task runs, and put back.

#ifndef TILEWISE_SRC_FLOAT_ENVIRONMENT_HPP
#define TILEWISE_SRC_FLOAT_ENVIRONMENT_HPP

#include <cstdint>

#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

namespace tilewise {

/// Round to nearest, subnormals kept, exceptions masked, for the lifetime of the object.
class float_environment {
public:
    float_environment() : saved_(read()) { write(standard); }
    ~float_environment() { write(saved_); }
    float_environment(const float_environment&) = delete;
    float_environment& operator=(const float_environment&) = delete;

private:
#if defined(__x86_64__)
    using state = unsigned;
    static constexpr state standard = 0x1f80;  // MXCSR after reset
    static state read() { return _mm_getcsr(); }
    static void write(state value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
    using state = std::uint64_t;
    static constexpr state standard = 0;  // FPCR
    static state read() {
        state value = 0;
        asm volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
        return value;
    }
    static void write(state value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }
#endif
    state saved_;
};

}  // namespace tilewise

#endif

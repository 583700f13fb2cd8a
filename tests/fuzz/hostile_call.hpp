// A small call of attention whose description a fuzzer has changed, for better or worse.

#ifndef TILEWISE_TESTS_FUZZ_HOSTILE_CALL_HPP
#define TILEWISE_TESTS_FUZZ_HOSTILE_CALL_HPP

#include <array>
#include <cstdint>
#include <tilewise/attention.hpp>
#include <vector>

#include "byte_source.hpp"
#include "call_kind.hpp"
#include "hostile.hpp"

namespace tilewise_tests {

struct hostile_call {
    call_kind kind = call_kind::exact;
    tilewise::const_tensor q;
    tilewise::const_tensor k;
    tilewise::const_tensor v;
    tilewise::tensor out;
    tilewise::options how;
    std::array<std::array<std::int64_t, 6>, 6> numbers{};  ///< that spans of the options point to
    std::array<std::array<float, 6>, 2> factors{};

    hostile_call(byte_source& bytes, arena& memory);
    hostile_call(const hostile_call&) = delete;
    hostile_call& operator=(const hostile_call&) = delete;
    ~hostile_call() = default;

    [[nodiscard]] std::vector<described> read() const;
    [[nodiscard]] std::vector<described> written() const;
    /// Whether f64 stands beside other types where it is for all or none.
    [[nodiscard]] bool misuses_f64() const;
    /// Whether what a plan reads is there, or so far away that it must be refused.
    [[nodiscard]] bool can_plan(arena& memory) const;
    /// Whether all memory is there and the work is little.
    [[nodiscard]] bool can_run(arena& memory) const;
    /// Whether a plan would list more tasks than a test wants.
    [[nodiscard]] bool has_too_many_tasks() const;
};

}  // namespace tilewise_tests

#endif

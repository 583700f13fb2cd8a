// Decisions taken from the bytes of a fuzzer. Once they are used up, all answers are the plainest ones.

#ifndef TILEWISE_TESTS_FUZZ_BYTE_SOURCE_HPP
#define TILEWISE_TESTS_FUZZ_BYTE_SOURCE_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

namespace tilewise_tests {

class byte_source {
public:
    byte_source(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

    std::uint8_t byte() {
        if (left_.empty()) { return 0; }
        const std::uint8_t first = left_.front();
        left_ = left_.subspan(1);
        return first;
    }

    /// Eight bytes.
    std::uint64_t word() {
        std::uint64_t all = 0;
        for (unsigned n = 0; n < 8; ++n) { all |= std::uint64_t{byte()} << (8U * n); }
        return all;
    }

    /// From `first` to `last`, both included: from one byte if that is enough, else from two.
    std::int64_t between(std::int64_t first, std::int64_t last) {
        const std::int64_t count = last - first + 1;
        std::int64_t number = byte();
        if (count > 256) { number |= std::int64_t{byte()} << 8; }
        return first + number % count;
    }

    /// False once the bytes are used up.
    bool one_in(std::int64_t n) { return byte() % n == n - 1; }

    template <class Choices>
    auto pick(const Choices& choices) {
        return choices[static_cast<std::size_t>(
            between(0, static_cast<std::int64_t>(std::size(choices)) - 1))];
    }

    [[nodiscard]] std::span<const std::uint8_t> rest() const { return left_; }

private:
    std::span<const std::uint8_t> left_;
};

/// A finding: the fuzzer keeps the bytes that led to it.
[[noreturn]] inline void report(const std::string& what) {
    std::fprintf(stderr, "finding: %s\n", what.c_str());
    std::abort();
}

}  // namespace tilewise_tests

#endif

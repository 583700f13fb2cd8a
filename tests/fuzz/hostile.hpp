// What a careless or malicious caller may describe: numbers, addresses and views of any kind, and what the
// fuzzers know of them without the library's help.

#ifndef TILEWISE_TESTS_FUZZ_HOSTILE_HPP
#define TILEWISE_TESTS_FUZZ_HOSTILE_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tilewise/tensor.hpp>
#include <vector>

#include "byte_source.hpp"

namespace tilewise_tests {

/// Small ones, and those near which products overflow.
std::int64_t hostile_number(byte_source& bytes);

/// Memory in which all tensors of a call lie, wherever they are said to be.
class arena {
public:
    static constexpr std::size_t size = 32768;

    arena();
    /// Fills it with pseudo-random numbers that are mostly finite in all types.
    void fill(std::uint8_t seed);
    [[nodiscard]] std::byte* data() { return memory_.data(); }
    [[nodiscard]] const std::vector<std::byte>& bytes() const { return memory_; }
    void restore(const std::vector<std::byte>& bytes) { memory_ = bytes; }

    /// Somewhere in it, aligned to 4 bytes most of the time; at times nowhere.
    std::byte* hostile_address(byte_source& bytes);

    /// The next free part of it.
    std::byte* take(std::size_t bytes);

private:
    std::vector<std::byte> memory_;
    std::size_t used_ = 0;
};

/// A view or an array of any rank, in bytes.
struct described {
    const void* data = nullptr;
    std::vector<std::int64_t> extents;
    std::vector<std::int64_t> strides;  ///< in elements
    std::int64_t block_elements = 1;
    std::int64_t block_bytes = 4;

    [[nodiscard]] bool has_elements() const;
    /// Whether it has no more elements than a test wants to look at.
    [[nodiscard]] bool is_small() const;
    /// Whether all of its elements lie in the arena, and are few.
    [[nodiscard]] bool is_within(arena& memory) const;
    /// Whether offsets exceed what 63 bits can count.
    [[nodiscard]] bool is_beyond_63_bits() const;
    /// Counts each byte of its elements; it must be within the arena. Returns false if one was counted
    /// before.
    bool count_bytes(arena& memory, std::vector<bool>& seen) const;
};
described describe(const tilewise::const_tensor& view);
described describe_scales(const tilewise::const_tensor& view);

/// Makes a contiguous view of the next free memory of the arena, with scales per token if the type has some.
template <class View>
void place(View& view, arena& memory, tilewise::element_type type,
           const std::array<std::int64_t, 4>& extents);

/// Changes one thing about a view.
template <class View>
void harm(View& view, byte_source& bytes, arena& memory);

/// Whether a call may be tried: all memory is there, or some of it so far away that it must be refused.
bool can_be_tried(std::span<const described> all, arena& memory);

/// Empty if a call that was accepted may read the one and write the others; else what is wrong, in words.
std::string flaw_of(arena& memory, std::span<const described> read, std::span<const described> written);

}  // namespace tilewise_tests

#endif

// Memory of tensors in layouts that a fuzzer chooses. Inputs are as large as their elements need and not a
// byte larger, so that AddressSanitizer sees any access beside them; results lie among canaries.

#ifndef TILEWISE_TESTS_FUZZ_FUZZ_MEMORY_HPP
#define TILEWISE_TESTS_FUZZ_FUZZ_MEMORY_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <tilewise/tensor.hpp>
#include <vector>

#include "byte_source.hpp"

namespace tilewise_tests {

using extents = std::array<std::int64_t, 4>;

/// What the numbers of a tensor are like.
struct number_mixture {
    std::uint64_t seed = 0;
    int exponent = 0;        ///< all are multiplied by 2 to its power
    unsigned special = 0;    ///< in 256: NaN, infinities, subnormals, zeros, extremes
    bool whole = false;      ///< small integers
    bool arbitrary = false;  ///< any bits
};
number_mixture pick_mixture(byte_source& bytes);

/// The next number of a mixture.
float next_number(number_mixture& mixture);
double next_f64(number_mixture& mixture);

/// A result: its memory, and where it should be written.
struct result_memory {
    std::string name;
    std::vector<std::byte> bytes;
    tilewise::tensor view;

    void clear();
    [[nodiscard]] bool is_clear() const;
    /// Whether all bytes that belong to no element are as clear() left them.
    [[nodiscard]] bool are_gaps_clear() const;
};

class fuzz_memory {
public:
    /// A tensor in any layout, with numbers of any mixture in its elements and gaps.
    tilewise::const_tensor input(byte_source& bytes, tilewise::element_type type, const extents& sizes);

    /// A result in any layout that gives every element a place of its own. The reference stays.
    tilewise::tensor result(byte_source& bytes, std::string name, tilewise::element_type type,
                            const extents& sizes);

    /// So many objects, of exactly that memory.
    template <class Value>
    Value* values(std::size_t count) {
        return reinterpret_cast<Value*>(blocks_.emplace_back(count * sizeof(Value)).data());
    }

    [[nodiscard]] std::deque<result_memory>& results() { return results_; }
    [[nodiscard]] const std::deque<result_memory>& results() const { return results_; }
    [[nodiscard]] const std::deque<std::vector<std::byte>>& inputs() const { return blocks_; }

private:
    std::deque<std::vector<std::byte>> blocks_;
    std::deque<result_memory> results_;
};

}  // namespace tilewise_tests

#endif

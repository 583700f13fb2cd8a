// Memory that ends, or begins, at a page that must not be touched: one element too far is a crash. POSIX
// only.

#ifndef TILEWISE_TESTS_GUARDED_MEMORY_HPP
#define TILEWISE_TESTS_GUARDED_MEMORY_HPP

#include <cstddef>
#include <cstdint>

namespace tilewise_tests {

/// On which side of the memory the protected page lies.
enum class guard : std::uint8_t { behind, before };

class guarded_memory {
public:
    /// Room for so many bytes, zero at first.
    guarded_memory(std::size_t bytes, guard where);
    ~guarded_memory();
    guarded_memory(const guarded_memory&) = delete;
    guarded_memory& operator=(const guarded_memory&) = delete;

    [[nodiscard]] std::byte* data() const { return data_; }

private:
    std::byte* pages_ = nullptr;
    std::size_t bytes_ = 0;
    std::byte* data_ = nullptr;
};

}  // namespace tilewise_tests

#endif

// Memory that the library allocates: where it cannot be had, that is an error like any other.

#ifndef TILEWISE_SRC_HEAP_ARRAY_HPP
#define TILEWISE_SRC_HEAP_ARRAY_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#if defined(__linux__)
#    include <sys/mman.h>
#endif

#include "errors.hpp"

namespace tilewise {

/// The product of factors that are not negative; false, and the error is noted, if no memory has so many
/// elements of a type.
template <class Element>
[[nodiscard]] bool count_elements(std::initializer_list<std::int64_t> factors, std::size_t& count) noexcept {
    bool is_empty = false;
    for (const std::int64_t factor : factors) { is_empty = is_empty || factor == 0; }
    count = is_empty ? 0 : 1;
    if (is_empty) { return true; }
    for (const std::int64_t factor : factors) {
        if (__builtin_mul_overflow(count, static_cast<std::size_t>(factor), &count)) { return lack_memory(); }
    }
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
    return count <= most / sizeof(Element) || lack_memory();
}

/// Asks the system to put memory that nothing has been written to on large pages, if there is much of it:
/// where a page is, is looked up when it is first read, which takes long on a virtual machine.
inline void wish_for_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::size_t large_page = std::size_t{1} << 21U;
    if (bytes < 4 * large_page) { return; }
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::size_t skipped = (large_page - address % large_page) % large_page;
    // Refused where the system has none: then pages are as they are.
    madvise(static_cast<std::byte*>(memory) + skipped, (bytes - skipped) / large_page * large_page,
            MADV_HUGEPAGE);
#endif
}

/// An array on the heap.
template <class Element>
class heap_array {
    static_assert(std::is_trivially_destructible_v<Element>);

public:
    /// So many elements, zeros, in place of those that were there.
    [[nodiscard]] bool allocate(std::size_t count) noexcept {
        memory_.reset();
        size_ = 0;
        constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
        if (count == 0) { return true; }
        if (count > most / sizeof(Element)) { return lack_memory(); }
        if constexpr (std::is_trivially_default_constructible_v<Element>) {
            memory_.reset(new (std::nothrow) Element[count]);
            if (memory_ == nullptr) { return lack_memory(); }
            wish_for_large_pages(memory_.get(), count * sizeof(Element));
            std::fill_n(memory_.get(), count, Element{});
        } else {
            memory_.reset(new (std::nothrow) Element[count]());
            if (memory_ == nullptr) { return lack_memory(); }
        }
        size_ = count;
        return true;
    }
    [[nodiscard]] bool allocate(std::initializer_list<std::int64_t> factors) noexcept {
        std::size_t count = 0;
        return count_elements<Element>(factors, count) && allocate(count);
    }
    void free() noexcept {
        memory_.reset();
        size_ = 0;
    }

    [[nodiscard]] Element* data() { return memory_.get(); }
    [[nodiscard]] const Element* data() const { return memory_.get(); }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(Element); }
    Element& operator[](std::size_t n) { return memory_[n]; }
    const Element& operator[](std::size_t n) const { return memory_[n]; }
    Element* begin() { return data(); }
    Element* end() { return data() + size_; }
    [[nodiscard]] const Element* begin() const { return data(); }
    [[nodiscard]] const Element* end() const { return data() + size_; }

private:
    std::unique_ptr<Element[]> memory_;
    std::size_t size_ = 0;
};

/// An array that is on the heap only if it has more elements than `few`.
template <class Element, std::size_t few>
class small_array {
public:
    small_array() = default;
    small_array(const small_array&) = delete;  // `all_` may point into it
    small_array& operator=(const small_array&) = delete;
    ~small_array() = default;

    [[nodiscard]] bool allocate(std::int64_t count) noexcept {
        const bool is_small = count <= static_cast<std::int64_t>(few);
        if (!is_small && !heap_.allocate({count})) { return false; }
        all_ = is_small ? std::span(few_).first(static_cast<std::size_t>(count))
                        : std::span<Element>(heap_.data(), heap_.size());
        return true;
    }

    [[nodiscard]] std::size_t size() const { return all_.size(); }
    Element& operator[](std::size_t n) { return all_[n]; }
    const Element& operator[](std::size_t n) const { return all_[n]; }

private:
    std::array<Element, few> few_{};
    heap_array<Element> heap_;
    std::span<Element> all_;
};

/// Scratch memory: bytes at a multiple of an alignment.
class scratch_array {
public:
    static constexpr std::align_val_t alignment{64};

    [[nodiscard]] bool allocate(std::size_t bytes) noexcept {
        memory_.reset(static_cast<std::byte*>(::operator new(bytes, alignment, std::nothrow)));
        return memory_ != nullptr || lack_memory();
    }
    [[nodiscard]] std::byte* data() const { return memory_.get(); }

private:
    struct deleter {
        void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
    };
    std::unique_ptr<std::byte, deleter> memory_;
};

}  // namespace tilewise

#endif

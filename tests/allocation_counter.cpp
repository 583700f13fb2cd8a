#include "allocation_counter.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

#include "sanitizers.hpp"

// A sanitizer brings its own malloc, and wants to keep it.
#if defined(__GLIBC__) && !defined(TILEWISE_TESTS_SANITIZED)
#    define TILEWISE_TESTS_COUNT_MALLOC 1
#endif

namespace {

std::atomic<bool> counting = false;
std::atomic<std::size_t> bytes_asked = 0;
std::atomic<std::size_t> largest_asked = 0;
std::atomic<std::size_t> requests_made = 0;
std::atomic<std::size_t> most_allowed = std::numeric_limits<std::size_t>::max();
std::atomic<std::int64_t> blocks = 0;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
std::atomic<std::int64_t> successes_left = never;

void note(std::size_t bytes) {
    if (!counting) { return; }
    bytes_asked += bytes;
    ++requests_made;
    std::size_t largest = largest_asked;
    while (bytes > largest && !largest_asked.compare_exchange_weak(largest, bytes)) {}
}

#ifdef TILEWISE_TESTS_COUNT_MALLOC
void note_operator_new(std::size_t) {}  // malloc notes it
#else
void note_operator_new(std::size_t bytes) { note(bytes); }
#endif

[[maybe_unused]] void* allocate(std::size_t bytes, std::size_t alignment) {
    note_operator_new(bytes);
    void* memory = nullptr;
    const bool must_fail = successes_left != never && successes_left-- == 0;
    if (bytes <= most_allowed && !must_fail) {
        const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        memory = alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                        : std::aligned_alloc(alignment, rounded);
    }
    if (memory == nullptr) { throw std::bad_alloc(); }
    ++blocks;
    return memory;
}

[[maybe_unused]] void give_back(void* memory) {
    if (memory != nullptr) { --blocks; }
    std::free(memory);
}

}  // namespace

#ifdef TILEWISE_TESTS_COUNT_MALLOC
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) noexcept {
    note(bytes);
    return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
    note(count * bytes);
    return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
    note(bytes);
    return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
    note(bytes);
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    note(bytes);
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
    note(bytes);
    *memory = __libc_memalign(alignment, bytes);
    return *memory == nullptr ? ENOMEM : 0;
}
}
#endif

#ifndef TILEWISE_TESTS_OTHER_NEW
void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
// Sanitizers bring their own of these, which would not fit the operator delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return allocate(bytes, 1);
    } catch (const std::bad_alloc&) { return nullptr; }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept {
    return operator new(bytes, tag);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    try {
        return allocate(bytes, static_cast<std::size_t>(alignment));
    } catch (const std::bad_alloc&) { return nullptr; }
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& tag) noexcept {
    return operator new(bytes, alignment, tag);
}

void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
#endif

namespace tilewise_tests {

allocation_counter::allocation_counter() {
    bytes_asked = 0;
    largest_asked = 0;
    requests_made = 0;
    counting = true;
}
allocation_counter::~allocation_counter() { counting = false; }
std::size_t allocation_counter::bytes() const { return bytes_asked; }
std::size_t allocation_counter::largest() const { return largest_asked; }
std::size_t allocation_counter::requests() const { return requests_made; }

allocation_limit::allocation_limit(std::size_t limit) { most_allowed = limit; }
allocation_limit::~allocation_limit() { most_allowed = std::numeric_limits<std::size_t>::max(); }

allocation_failure::allocation_failure(std::size_t number) {
    successes_left = static_cast<std::int64_t>(number);
}
allocation_failure::~allocation_failure() { successes_left = never; }
bool allocation_failure::happened() const { return successes_left < 0; }

std::int64_t blocks_in_use() { return blocks; }

}  // namespace tilewise_tests

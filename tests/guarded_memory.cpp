#include "guarded_memory.hpp"

#if defined(__unix__) || defined(__APPLE__)

#    include <sys/mman.h>
#    include <unistd.h>

#    include <new>

namespace tilewise_tests {

guarded_memory::guarded_memory(std::size_t wanted, guard where) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = (wanted + page - 1) / page * page;
    bytes_ = usable + 2 * page;
    void* const mapped = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) { throw std::bad_alloc(); }
    pages_ = static_cast<std::byte*>(mapped);
    std::byte* const first = pages_ + page;
    if (usable > 0 && mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) { throw std::bad_alloc(); }
    // An empty tensor has no element, so its address may be that of the protected page itself.
    data_ = where == guard::before ? first : first + usable - wanted;
}

guarded_memory::~guarded_memory() { munmap(pages_, bytes_); }

}  // namespace tilewise_tests

#endif

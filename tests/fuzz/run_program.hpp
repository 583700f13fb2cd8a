// tilewise run, in this process, on files that a fuzzer makes.

#ifndef TILEWISE_TESTS_FUZZ_RUN_PROGRAM_HPP
#define TILEWISE_TESTS_FUZZ_RUN_PROGRAM_HPP

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <string>

#include "byte_source.hpp"

namespace tilewise_tests {

/// A file in memory.
class memory_file {
public:
    memory_file(const void* data, std::size_t size) : descriptor_(memfd_create("fuzz.npy", 0)) {
        if (descriptor_ < 0 || write(descriptor_, data, size) != static_cast<ssize_t>(size)) {
            throw std::bad_alloc();
        }
    }
    ~memory_file() { close(descriptor_); }
    memory_file(const memory_file&) = delete;
    memory_file& operator=(const memory_file&) = delete;

    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

private:
    int descriptor_;
};

/// Makes q, k and v, of any shapes and with some bytes changed, and other arguments, and runs the program on
/// them. Either it writes the reference's results, or it says what is wrong and leaves no file behind.
void check_run(byte_source& bytes);

}  // namespace tilewise_tests

#endif

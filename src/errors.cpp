#include "errors.hpp"

#include <cstdlib>
#include <new>
#include <stdexcept>

namespace tilewise {

noted_error& error_of_thread() noexcept {
    thread_local noted_error error;
    return error;
}

bool lack_memory() noexcept {
    return fail(status_code::out_of_memory, "the memory that this call needs cannot be had");
}

status status_of(bool worked) noexcept {
    if (worked) { return {}; }
    const noted_error& error = error_of_thread();
    return {error.code, error.message.c_str()};
}

void raise(const status& error) {
#ifdef __cpp_exceptions
    switch (error.code) {
        case status_code::invalid_argument:
            throw std::invalid_argument(error.message);
        case status_code::out_of_memory:
            throw std::bad_alloc();
        case status_code::cache_full:
            throw std::length_error(error.message);
        case status_code::stream_finished:
            throw std::logic_error(error.message);
        default:
            throw std::runtime_error(error.message);
    }
#else
    std::fprintf(stderr, "%s\n", error.message);
    std::abort();
#endif
}

}  // namespace tilewise

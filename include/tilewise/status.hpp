// Errors as values, for programs that are compiled without exceptions.
//
// Functions and members whose names begin with try_ return what the one of the same name throws. They never
// throw, and nothing was written or changed where they fail. All headers can be used with -fno-exceptions and
// -fno-rtti, and the library itself can be compiled so (TILEWISE_EXCEPTIONS=OFF in CMake): the bits are the
// same, and a function that is documented to throw then writes its message to the standard error and ends the
// program.

#ifndef TILEWISE_STATUS_HPP
#define TILEWISE_STATUS_HPP

#include <cstdint>

namespace tilewise {

/// What went wrong, and which exception says so.
enum class status_code : std::uint8_t {
    ok,
    invalid_argument,  ///< std::invalid_argument
    out_of_memory,     ///< std::bad_alloc
    internal_error,    ///< std::runtime_error
    cache_full,        ///< std::length_error: a kv_cache has no page, sequence or place left
    stream_finished    ///< std::logic_error: an attention_stream has been finished, or moved from
};

/// Whether a call worked.
struct [[nodiscard]] status {
    status_code code = status_code::ok;
    /// What an exception would say. It stays until the next error in the same thread.
    const char* message = "";

    [[nodiscard]] constexpr bool is_ok() const { return code == status_code::ok; }
};

}  // namespace tilewise

#endif

#include "errors.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace tilewise {

std::size_t text_part::write(char* to, std::size_t room) const noexcept {
    std::array<char, 32> digits{};
    std::string_view text = text_;
    if (kind_ == kind::real) {
        std::snprintf(digits.data(), digits.size(), "%g", real_);
        text = digits.data();
    } else if (kind_ != kind::text) {
        char* const end = digits.data() + digits.size();
        const std::to_chars_result result =
            kind_ == kind::integer ? std::to_chars(digits.data(), end, integer_)
                                   : std::to_chars(digits.data(), end, static_cast<std::uint64_t>(integer_));
        text = {digits.data(), static_cast<std::size_t>(result.ptr - digits.data())};
    }
    const std::size_t count = std::min(text.size(), room);
    std::copy_n(text.data(), count, to);
    return count;
}

bool note_error(status_code code, std::initializer_list<text_part> parts) noexcept {
    noted_error& error = error_of_thread();
    error.code = code;
    error.message.assign({"tilewise: "});
    for (const text_part& part : parts) { error.message.add(part); }
    return false;
}

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

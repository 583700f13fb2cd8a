// Errors are values here: a function that can fail notes what is wrong, for its thread, and returns false.
// The public functions that throw, and those that return a status, are thin layers over these, so that the
// library is the same with and without exceptions.

#ifndef TILEWISE_SRC_ERRORS_HPP
#define TILEWISE_SRC_ERRORS_HPP

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <tilewise/status.hpp>

namespace tilewise {

/// Text in place, which allocates nothing; what is longer than `capacity` is cut off.
template <std::size_t capacity>
class short_text {
public:
    template <class... Parts>
    void assign(const Parts&... parts) noexcept {
        size_ = 0;
        (add(parts), ...);
    }
    void add(std::string_view part) noexcept {
        const std::size_t count = std::min(part.size(), capacity - size_);
        std::copy_n(part.data(), count, text_.data() + size_);
        size_ += count;
        text_[size_] = '\0';
    }
    template <std::integral Number>
    void add(Number number) noexcept {
        std::array<char, 24> digits{};
        const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
        add(std::string_view(digits.data(), end.ptr));
    }
    void add(double number) noexcept {
        std::array<char, 32> digits{};
        std::snprintf(digits.data(), digits.size(), "%g", number);
        add(std::string_view(digits.data()));
    }
    void add(float number) noexcept { add(static_cast<double>(number)); }

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }
    // NOLINTNEXTLINE(google-explicit-constructor): it is text.
    operator std::string_view() const noexcept { return {text_.data(), size_}; }

private:
    std::array<char, capacity + 1> text_{};
    std::size_t size_ = 0;
};

/// The last error of a thread.
struct noted_error {
    status_code code = status_code::ok;
    short_text<1023> message;
};

/// That of the calling thread.
noted_error& error_of_thread() noexcept;

/// Notes an error, with these parts as its message. False, so that `return fail(...)` says it all.
template <class... Parts>
[[nodiscard]] bool fail(status_code code, const Parts&... parts) noexcept {
    noted_error& error = error_of_thread();
    error.code = code;
    error.message.assign("tilewise: ", parts...);
    return false;
}

/// A wrong argument.
template <class... Parts>
[[nodiscard]] bool refuse(const Parts&... parts) noexcept {
    return fail(status_code::invalid_argument, parts...);
}

[[nodiscard]] bool lack_memory() noexcept;

/// What a function that may have failed returns to its caller outside.
[[nodiscard]] status status_of(bool worked) noexcept;

/// Throws the exception that stands for an error. A library that is compiled without exceptions writes the
/// message to the standard error and ends the program.
[[noreturn]] void raise(const status& error);

inline void raise_unless(const status& result) {
    if (!result.is_ok()) { raise(result); }
}

}  // namespace tilewise

#endif

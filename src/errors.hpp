// Errors are values here: a function that can fail notes what is wrong, for its thread, and returns false.
// The public functions that throw, and those that return a status, are thin layers over these, so that the
// library is the same with and without exceptions.

#ifndef TILEWISE_SRC_ERRORS_HPP
#define TILEWISE_SRC_ERRORS_HPP

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <tilewise/status.hpp>

namespace tilewise {

/// A part of a message: text or a number. Only a pointer or a value, so that little code is needed where
/// errors are noted, which is in many places.
class text_part {
public:
    // NOLINTBEGIN(google-explicit-constructor): parts of messages are listed as they are.
    text_part(std::string_view text) noexcept : kind_(kind::text), text_(text) {}
    text_part(const char* text) noexcept : text_part(std::string_view(text)) {}
    text_part(double number) noexcept : kind_(kind::real), real_(number) {}
    text_part(float number) noexcept : text_part(static_cast<double>(number)) {}
    template <std::integral Number>
    text_part(Number number) noexcept
        : kind_(std::unsigned_integral<Number> ? kind::natural : kind::integer),
          integer_(static_cast<std::int64_t>(number)) {}
    // NOLINTEND(google-explicit-constructor)

    /// Writes it into `room` characters as far as it fits. Returns how many it took.
    std::size_t write(char* to, std::size_t room) const noexcept;

private:
    enum class kind : unsigned char { text, integer, natural, real };
    kind kind_;
    std::string_view text_ = {};
    std::int64_t integer_ = 0;
    double real_ = 0;
};

/// Text in place, which allocates nothing; what is longer than `capacity` is cut off.
template <std::size_t capacity>
class short_text {
public:
    void assign(std::initializer_list<text_part> parts) noexcept {
        size_ = 0;
        for (const text_part& part : parts) { add(part); }
    }
    void add(const text_part& part) noexcept {
        size_ += part.write(text_.data() + size_, capacity - size_);
        text_[size_] = '\0';
    }

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }
    // NOLINTBEGIN(google-explicit-constructor): it is text.
    operator std::string_view() const noexcept { return {text_.data(), size_}; }
    operator text_part() const noexcept { return std::string_view(*this); }
    // NOLINTEND(google-explicit-constructor)

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
[[nodiscard, gnu::cold]] bool note_error(status_code code, std::initializer_list<text_part> parts) noexcept;
template <class... Parts>
[[nodiscard]] bool fail(status_code code, const Parts&... parts) noexcept {
    return note_error(code, {text_part(parts)...});
}

/// A wrong argument.
template <class... Parts>
[[nodiscard]] bool refuse(const Parts&... parts) noexcept {
    return note_error(status_code::invalid_argument, {text_part(parts)...});
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

// The line that no exception crosses, for the functions that return a status.

#ifndef TILEWISE_SRC_GUARDED_HPP
#define TILEWISE_SRC_GUARDED_HPP

#include <exception>
#include <new>
#include <stdexcept>
#include <tilewise/status.hpp>

namespace tilewise {

/// Keeps the message for the calling thread; what is longer than 511 characters is cut off.
status fail(status_code code, const char* message) noexcept;

/// The message of the calling thread's last error; "" if there was none.
const char* last_error() noexcept;

/// Runs a function that may throw.
template <class Function>
status guarded(const Function& call) noexcept {
    try {
        call();
        return {};
    } catch (const std::invalid_argument& error) {
        return fail(status_code::invalid_argument, error.what());
    } catch (const std::bad_alloc&) {
        return fail(status_code::out_of_memory, "tilewise: the memory that this call needs cannot be had");
    } catch (const std::exception& error) {
        return fail(status_code::internal_error, error.what());
    } catch (...) { return fail(status_code::internal_error, "tilewise: unknown error"); }
}

}  // namespace tilewise

#endif

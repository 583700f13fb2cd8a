// Attention for programs that are compiled without exceptions: what went wrong is returned.
//
// All headers here can be used with -fno-exceptions and -fno-rtti. A function that is documented to throw
// ends such a program instead; these never throw. The library itself is compiled with exceptions.

#ifndef TILEWISE_STATUS_HPP
#define TILEWISE_STATUS_HPP

#include <cstdint>

#include <tilewise/attention.hpp>
#include <tilewise/export.hpp>

namespace tilewise {

enum class status_code : std::uint8_t { ok, invalid_argument, out_of_memory, internal_error };

/// Whether a call worked; where it did not, nothing was written.
struct [[nodiscard]] status {
    status_code code = status_code::ok;
    /// What an exception would say. It stays until the next error in the same thread.
    const char* message = "";

    [[nodiscard]] constexpr bool is_ok() const { return code == status_code::ok; }
};

/// attention().
TILEWISE_API status try_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                                  const tensor& out, const options& how = {}) noexcept;

/// plan_attention(); the plan is written only if it could be made.
TILEWISE_API status try_plan_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                                       const tensor& out, const options& how, plan& result) noexcept;

}  // namespace tilewise

#endif

#include <tilewise/status.hpp>

#include <cstdio>

#include "guarded.hpp"

namespace tilewise {

namespace {

thread_local char message_of_thread[512] = "";

}  // namespace

status fail(status_code code, const char* message) noexcept {
    std::snprintf(message_of_thread, sizeof message_of_thread, "%s", message);
    return {code, message_of_thread};
}

const char* last_error() noexcept { return message_of_thread; }

status try_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v, const tensor& out,
                     const options& how) noexcept {
    return guarded([&] { attention(q, k, v, out, how); });
}

status try_plan_attention(const const_tensor& q, const const_tensor& k, const const_tensor& v,
                          const tensor& out, const options& how, plan& result) noexcept {
    return guarded([&] { result = plan_attention(q, k, v, out, how); });
}

}  // namespace tilewise

#include "refusals.hpp"

#include <doctest/doctest.h>
#include <functional>
#include <stdexcept>
#include <tilewise/reference.hpp>

namespace tilewise_tests {

std::string refusal_of(const std::function<void()>& call) {
    try {
        call();
        return {};
    } catch (const std::invalid_argument& error) { return error.what(); }
}

void check_refusal(const std::function<void()>& call, const std::vector<std::string>& parts) {
    const std::string message = refusal_of(call);
    INFO("message: ", message);
    REQUIRE(message != "");
    for (const std::string& part : parts) {
        INFO("wanted: ", part);
        CHECK(message.find(part) != std::string::npos);
    }
}

void refuses(const inputs& given, const owned_tensor& out, const tilewise::options& how,
             const std::vector<std::string>& parts) {
    const tilewise::const_tensor q = given.q.view();
    const tilewise::const_tensor k = given.k.view();
    const tilewise::const_tensor v = given.v.view();
    const std::function<void()> calls[] = {
        [&] { tilewise::attention(q, k, v, out.view(), how); },
        [&] { tilewise::reference::attention(q, k, v, out.view(), how); },
        [&] { static_cast<void>(tilewise::plan_attention(q, k, v, out.view(), how)); }};
    for (const auto& call : calls) {
        check_refusal(call, parts);
        CHECK(out.damage() == "");
    }
}

void refuses(const tilewise::options& how, const std::vector<std::string>& parts) {
    refuses(make_inputs(refused_sizes), make_results(refused_sizes).out, how, parts);
}

}  // namespace tilewise_tests

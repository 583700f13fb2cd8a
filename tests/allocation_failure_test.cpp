// Memory that runs out, at every single allocation: the call throws std::bad_alloc, keeps nothing, and has
// written nothing.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <tilewise/documents.hpp>
#include <tilewise/onnx.hpp>
#include <tilewise/reference.hpp>
#include <vector>

#include "all_results.hpp"
#include "allocation_counter.hpp"
#include "cases.hpp"

using namespace tilewise_tests;

namespace {

using count = std::int64_t;

struct attempt {
    bool threw = false;
    bool was_refused = false;
    bool failed = false;  ///< an allocation did
    count kept = 0;       ///< blocks of memory
};

/// Calls with the allocation of this number failing.
attempt try_with_failure(std::size_t number, const std::function<void()>& call) {
    attempt made;
    const count before = blocks_in_use();
    {
        const allocation_failure failure(number);
        try {
            call();
        } catch (const std::bad_alloc&) { made.threw = true; } catch (const std::invalid_argument&) {
            made.was_refused = true;
        }
        made.failed = failure.happened();
    }
    made.kept = blocks_in_use() - before;
    return made;
}

/// Fails each allocation in turn, until there is none left to fail. Calls `prepare` before each call, and
/// `check` after each that threw: some allocations may fail without harm, as those of std::stable_sort.
/// Returns how many calls threw.
std::size_t fail_each_allocation(
    const std::function<void()>& call, const std::function<void()>& prepare = [] {},
    const std::function<void()>& check = [] {}) {
    prepare();
    call();  // OpenMP starts its threads, and the library looks at the machine
    std::size_t thrown = 0;
    for (std::size_t number = 0;; ++number) {
        prepare();
        const attempt made = try_with_failure(number, call);
        INFO("allocation ", number);
        CHECK(made.kept == 0);
        CHECK((made.failed || !made.threw));
        if (!made.failed) { return thrown; }
        if (!made.threw) { continue; }
        ++thrown;
        check();
    }
}

}  // namespace

TEST_CASE("allocation failures: attention and its plan, whatever they allocate for") {
    attention_case which{.batch = 2, .heads = 2, .queries = 90, .keys = 200, .key_dim = 8, .value_dim = 8};
    which.types[1] = tilewise::element_type::f16;
    const inputs given = make_inputs(which);
    const std::vector<count> lengths = {200, 70};  // a list of tasks
    for (const int threads : {1, 2}) {
        std::optional<all_results> into;
        tilewise::options how;
        const auto prepare = [&] {
            into.emplace(which, std::vector<count>{0, 89});
            how = into->asked_for({.threads = threads});
            how.key_lengths = lengths;
        };
        const auto check = [&] { CHECK(damage(*into) == ""); };
        CHECK(fail_each_allocation(
                  [&] {
                      tilewise::attention(given.q.view(), given.k.view(), given.v.view(), into->out.view(),
                                          how);
                  },
                  prepare, check) >= 1);
        CHECK(fail_each_allocation(
                  [&] {
                      static_cast<void>(tilewise::plan_attention(given.q.view(), given.k.view(),
                                                                 given.v.view(), into->out.view(), how));
                  },
                  prepare, check) == 0);
    }
}

TEST_CASE("allocation failures: a refusal that cannot be put into words") {
    const attention_case which{.queries = 3, .keys = 4};
    const inputs given = make_inputs(which);
    const results into = make_results(which);
    tilewise::const_tensor k = given.k.view();
    k.extents[3] = 5;
    bool was_refused = false;
    for (std::size_t number = 0; !was_refused; ++number) {
        const attempt made = try_with_failure(
            number, [&] { tilewise::attention(given.q.view(), k, given.v.view(), into.out.view()); });
        CHECK(made.kept == 0);
        CHECK((made.threw || made.was_refused));
        was_refused = made.was_refused && !made.failed;
    }
    CHECK(into.out.damage() == "");
}

TEST_CASE("allocation failures: the reference, document boundaries and the ONNX operator keep no memory") {
    const attention_case which{.heads = 2, .queries = 9, .keys = 150, .key_dim = 4, .value_dim = 3};
    const inputs given = make_inputs(which);
    const all_results into(which, {0, 8});
    const tilewise::options how = into.asked_for({});
    CHECK(fail_each_allocation([&] {
              tilewise::reference::attention(given.q.view(), given.k.view(), given.v.view(), into.out.view(),
                                             how);
          }) > 5);
    const std::vector<count> ids = {1, 1, 2, 2, 2, 5, 5, 9, 7};
    CHECK(fail_each_allocation([&] { static_cast<void>(tilewise::document_boundaries(ids)); }) >= 1);

    const std::vector<float> values(2 * 6 * 4, 0.5F);
    std::vector<float> y(2 * 6 * 4);
    std::vector<float> qk(2 * 6 * 12);
    constexpr std::array<count, 4> shape = {1, 2, 6, 4};
    constexpr std::array<count, 4> qk_shape = {1, 2, 6, 12};
    const tilewise::onnx::const_array tokens{values.data(), tilewise::onnx::data_type::float32, shape};
    for (const count mode : {0, 3}) {
        const tilewise::onnx::outputs wanted{.y = {y.data(), tilewise::onnx::data_type::float32, shape},
                                             .qk_matmul_output = tilewise::onnx::array{
                                                 qk.data(), tilewise::onnx::data_type::float32, qk_shape}};
        CHECK(fail_each_allocation([&] {
                  tilewise::onnx::attention(
                      {.q = tokens, .k = tokens, .v = tokens, .past_key = tokens, .past_value = tokens},
                      {.qk_matmul_output_mode = mode}, wanted);
              }) >= 3);
    }
}

// Which instruction set runs: names, listing, forcing, and the environment variable TILEWISE_ISA.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "cases.hpp"
#include "isa_probe.hpp"
#include "refusals.hpp"

using namespace tilewise_tests;

namespace {

constexpr std::array all_isas = {tilewise::isa::sse2, tilewise::isa::avx2, tilewise::isa::avx512,
                                 tilewise::isa::neon};

bool is_available(tilewise::isa which) {
    const auto available = tilewise::available_isas();
    return std::find(available.begin(), available.end(), which) != available.end();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("isa: names lead back to their instruction sets, and nonsense is refused") {
    CHECK(tilewise::isa_name(tilewise::isa::sse2) == "sse2");
    CHECK(tilewise::isa_name(tilewise::isa::avx2) == "avx2");
    CHECK(tilewise::isa_name(tilewise::isa::avx512) == "avx512");
    CHECK(tilewise::isa_name(tilewise::isa::neon) == "neon");
    for (const tilewise::isa which : all_isas) {
        CHECK(tilewise::isa_from_name(tilewise::isa_name(which)) == which);
    }
    for (const std::string name : {"", "SSE2", "avx", "avx2 ", "avx5120"}) {
        const std::string message = refusal_of([&] { static_cast<void>(tilewise::isa_from_name(name)); });
        INFO(message);
        CHECK(has(message, "isa"));
        CHECK(has(message, "'" + name + "'"));
        for (const tilewise::isa which : all_isas) {
            CHECK(has(message, std::string(tilewise::isa_name(which))));
        }
    }
}

TEST_CASE("isa: the available ones are listed slowest first, and one of them is active") {
    const auto available = tilewise::available_isas();
    REQUIRE(!available.empty());
    CHECK(std::is_sorted(available.begin(), available.end()));
    CHECK(std::adjacent_find(available.begin(), available.end()) == available.end());
    CHECK(is_available(tilewise::active_isa()));
    CHECK(tilewise::isa_name(available.front()) == TILEWISE_TESTS_FIRST_ISA);
}

TEST_CASE("isa: forcing one makes it run, with the same bits; undoing that restores the first") {
    const tilewise::isa before = tilewise::active_isa();
    const attention_case which{
        .heads = 2, .kv_heads = 1, .queries = 60, .keys = 200, .causal = tilewise::causal::bottom_right};
    const inputs given = make_inputs(which);
    const results want = naive(which, given);
    for (const tilewise::isa isa : tilewise::available_isas()) {
        tilewise::force_isa(isa);
        CHECK(tilewise::active_isa() == isa);
        const results got = tiled(which, given);
        const auto plan =
            tilewise::plan_attention(given.q.view(), given.k.view(), given.v.view(), got.out.view());
        CHECK(plan.isa == isa);
        CHECK(first_difference(got, want) == "");
    }
    tilewise::unforce_isa();
    CHECK(tilewise::active_isa() == before);
}

TEST_CASE("isa: forcing one that is not there is refused, and changes nothing") {
    const tilewise::isa before = tilewise::active_isa();
    for (const tilewise::isa which : all_isas) {
        if (is_available(which)) { continue; }
        const std::string message = refusal_of([&] { tilewise::force_isa(which); });
        INFO(message);
        CHECK(has(message, std::string(tilewise::isa_name(which)) + " given"));
        for (const tilewise::isa available : tilewise::available_isas()) {
            CHECK(has(message, std::string(tilewise::isa_name(available))));
        }
        CHECK(tilewise::active_isa() == before);
    }
    CHECK_THROWS_AS(tilewise::force_isa(static_cast<tilewise::isa>(99)), std::invalid_argument);
    CHECK(tilewise::active_isa() == before);
    tilewise::unforce_isa();
}

TEST_CASE("isa: TILEWISE_ISA chooses; nonsense and what is not there are errors of every call") {
    for (const isa_probe& probe : isa_probes()) {
        INFO("TILEWISE_ISA=", probe.value);
        if (probe.value.empty()) {  // as if it were not set
            CHECK(probe.active_isa == tilewise::isa_name(tilewise::available_isas().back()));
            CHECK(probe.attention == "computed");
            continue;
        }
        const auto named = std::find_if(all_isas.begin(), all_isas.end(), [&](tilewise::isa which) {
            return tilewise::isa_name(which) == probe.value;
        });
        if (named != all_isas.end() && is_available(*named)) {
            CHECK(probe.active_isa == probe.value);
            CHECK(probe.attention == "computed");
            CHECK(probe.wrote_output);
            continue;
        }
        for (const std::string& answer : {probe.active_isa, probe.attention}) {
            INFO(answer);
            CHECK(has(answer, "error: "));
            CHECK(has(answer, probe.value));
            CHECK(has(answer, std::string(tilewise::isa_name(tilewise::available_isas().front()))));
        }
        CHECK(!probe.wrote_output);
    }
}

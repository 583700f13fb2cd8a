#include "all_results.hpp"

#include <cstddef>

#include "thread_pool.hpp"

namespace tilewise_tests {

all_results::all_results(const attention_case& sizes, const std::vector<std::int64_t>& chosen,
                         const layout& where)
    : rows(chosen),
      out({sizes.batch, sizes.heads, sizes.queries, sizes.value_dim}, where, result_type(sizes)),
      lse({sizes.batch, sizes.heads, sizes.queries, 1}, where, result_type(sizes)),
      row_maximum({sizes.batch, sizes.heads, sizes.queries, 1}, where, result_type(sizes)),
      entropy({sizes.batch, sizes.heads, sizes.queries, 1}, where, result_type(sizes)),
      key_weights({sizes.batch, sizes.heads, 1, sizes.keys}, where, result_type(sizes)),
      weights({sizes.batch, sizes.heads, static_cast<std::int64_t>(chosen.size()), sizes.keys}, where,
              result_type(sizes)) {}

tilewise::options all_results::asked_for(tilewise::options how) const {
    how.lse = lse.view();
    how.extra = {row_maximum.view(), entropy.view(), key_weights.view(), rows, weights.view()};
    return threaded(how);
}

std::array<all_results::part, 6> all_results::parts() const {
    return {{{"out", &out},
             {"lse", &lse},
             {"row_maximum", &row_maximum},
             {"entropy", &entropy},
             {"key_weights", &key_weights},
             {"weights", &weights}}};
}

void attend(const inputs& given, const tilewise::options& how, const all_results& into) {
    tilewise::attention(given.q.view(), given.k.view(), given.v.view(), into.out.view(), into.asked_for(how));
}

all_results attend(const attention_case& sizes, const inputs& given, const tilewise::options& how,
                   const std::vector<std::int64_t>& chosen) {
    all_results made(sizes, chosen);
    attend(given, how, made);
    return made;
}

std::string first_difference(const all_results& got, const all_results& want) {
    const auto got_parts = got.parts();
    const auto want_parts = want.parts();
    for (std::size_t n = 0; n < got_parts.size(); ++n) {
        const std::string found = first_difference(got_parts[n].tensor->view(), want_parts[n].tensor->view());
        if (!found.empty()) { return std::string(got_parts[n].name) + ": " + found; }
    }
    return {};
}

std::string damage_to_gaps(const all_results& of) {
    for (const all_results::part& one : of.parts()) {
        const std::string found = one.tensor->damage_to_gaps();
        if (!found.empty()) { return std::string(one.name) + ": " + found; }
    }
    return {};
}

std::string damage(const all_results& of) {
    for (const all_results::part& one : of.parts()) {
        const std::string found = one.tensor->damage();
        if (!found.empty()) { return std::string(one.name) + ": " + found; }
    }
    return {};
}

std::vector<std::int64_t> every(std::int64_t step, std::int64_t end) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t n = 0; n < end; n += step) { numbers.push_back(n); }
    return numbers;
}

}  // namespace tilewise_tests

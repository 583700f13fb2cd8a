// Checks of the results that a call may be asked for besides the output.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "option_checks.hpp"

namespace tilewise {

namespace {

bool check_chosen_rows(const options& how, const const_tensor& q, problem& p) {
    const std::span<const std::int64_t> rows = how.extra.weight_rows;
    if (how.extra.weights.data == nullptr) {
        if (!rows.empty()) {
            return refuse("extra.weights: null data given, weight_rows has ", rows.size(), " rows");
        }
        return true;
    }
    for (std::size_t n = 0; n < rows.size(); ++n) {
        if (rows[n] < 0 || rows[n] >= q.tokens()) {
            return refuse("extra.weight_rows: ", rows[n], " given, it must be from 0 to ", q.tokens() - 1);
        }
        if (n > 0 && rows[n] <= rows[n - 1]) {
            return refuse("extra.weight_rows: ", rows[n], " follows ", rows[n - 1], ", rows must ascend");
        }
    }
    p.chosen = {rows.data(), static_cast<std::int64_t>(rows.size()), p.keys};
    return true;
}

}  // namespace

bool check_result(std::string_view name, const tensor& view, element_type type,
                  const std::array<std::int64_t, 4>& extents, memory_map& memory) {
    if (view.data == nullptr) { return true; }
    byte_range bytes;
    if (!check_view(name, view, type, bytes)) { return false; }
    for (std::size_t a = 0; a < 4; ++a) {
        if (view.extents[a] != extents[a]) {
            return refuse(name, ": ", axis_names[a], " is ", view.extents[a], ", it must be ", extents[a]);
        }
    }
    return require_distinct_elements(name, view) && memory.write(name, bytes);
}

bool check_results(const options& how, const const_tensor& q, const const_tensor& k, memory_map& memory,
                   problem& p) {
    const std::array<std::int64_t, 4> per_row = {q.batch(), q.heads(), q.tokens(), 1};
    const std::array<std::int64_t, 4> per_key = {q.batch(), q.heads(), 1,
                                                 p.pages == nullptr ? k.tokens() : p.keys};
    p.sum_keys = how.extra.key_weights.data != nullptr;
    return check_result("lse", how.lse, p.real, per_row, memory) &&
           check_result("extra.row_maximum", how.extra.row_maximum, p.real, per_row, memory) &&
           check_result("extra.entropy", how.extra.entropy, p.real, per_row, memory) &&
           check_result("extra.key_weights", how.extra.key_weights, p.real, per_key, memory) &&
           check_chosen_rows(how, q, p) &&
           check_result("extra.weights", how.extra.weights, p.real,
                        {q.batch(), q.heads(), p.chosen.count, p.keys}, memory);
}

bool has_results(const tensor& out, const options& how, const problem& p) {
    if (!is_empty(out) || (how.score_function.call != nullptr && p.keys > 0)) { return true; }
    const extra_results& extra = how.extra;
    const std::array views = {&how.lse, &extra.row_maximum, &extra.entropy, &extra.key_weights,
                              &extra.weights};
    return std::any_of(views.begin(), views.end(),
                       [](const tensor* view) { return view->data != nullptr && !is_empty(*view); });
}

}  // namespace tilewise

#include "entry_points.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <stdexcept>
#include <tilewise/status.hpp>

#include "byte_source.hpp"

/// Memory that cannot be had is refused under AddressSanitizer, too.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace tilewise_tests {
namespace {

using tilewise::options;

constexpr const char* no_memory = "out of memory";

/// The context is the options that have the function.
void call_in_c(void* context, const tilewise_score_tile* tile) {
    const auto& function = *static_cast<const tilewise::score_function*>(context);
    function.call(function.context,
                  {tile->batch, tile->head, tile->first_query, tile->queries, tile->query_position,
                   tile->first_key, tile->keys, tile->scores, tile->query_stride, tile->key_stride});
}

template <class Value>
std::int64_t size_of(std::span<const Value> values) {
    return static_cast<std::int64_t>(values.size());
}

void say_masks(const options& how, tilewise_options& made) {
    made.has_query_position = how.query_position.has_value() ? 1 : 0;
    made.query_position = how.query_position.value_or(0);
    made.key_position = how.key_position;
    made.has_window_left = how.window_left.has_value() ? 1 : 0;
    made.window_left = how.window_left.value_or(0);
    made.has_window_right = how.window_right.has_value() ? 1 : 0;
    made.window_right = how.window_right.value_or(0);
    made.prefix = how.prefix;
    made.attention_chunk = how.attention_chunk;
    made.documents = how.documents.data();
    made.document_count = size_of(how.documents);
    made.key_lengths = how.key_lengths.data();
    made.key_length_count = size_of(how.key_lengths);
    made.query_starts = how.query_starts.data();
    made.key_starts = how.key_starts.empty() ? nullptr : how.key_starts.data();
    made.start_count = size_of(how.query_starts);
    made.first_keys = in_c(how.ranges.first);
    made.last_keys = in_c(how.ranges.last);
    made.mask = in_c(how.mask);
    made.blocks = in_c(how.blocks.visible);
    made.query_block = how.blocks.query_block;
    made.key_block = how.blocks.key_block;
    made.key_positions = how.key_positions.data();
    made.key_position_count = size_of(how.key_positions);
    made.block_table = in_c(how.block_table);
}

void say_scores(const options& how, tilewise_options& made) {
    made.scale = how.scale.value_or(0.0F);
    made.has_scale = how.scale.has_value() ? 1 : 0;
    made.scale_f64 = how.scale_f64.value_or(0.0);
    made.has_scale_f64 = how.scale_f64.has_value() ? 1 : 0;
    made.soft_cap = how.soft_cap;
    made.bias = in_c(how.bias);
    made.alibi_slopes = how.alibi_slopes.data();
    made.alibi_slope_count = size_of(how.alibi_slopes);
    made.sinks = how.sinks.data();
    made.sink_count = size_of(how.sinks);
    if (how.score_function.call != nullptr) {
        made.score_function = call_in_c;
        made.score_context = const_cast<tilewise::score_function*>(&how.score_function);
    }
}

void say_results(const options& how, tilewise_options& made) {
    made.lse = in_c(how.lse);
    made.row_maximum = in_c(how.extra.row_maximum);
    made.entropy = in_c(how.extra.entropy);
    made.key_weights = in_c(how.extra.key_weights);
    made.weights = in_c(how.extra.weights);
    made.weight_rows = how.extra.weight_rows.data();
    made.weight_row_count = size_of(how.extra.weight_rows);
}

std::string compute_in_c(const call_view& call, const options& how) {
    const tilewise_tensor q = in_c(call.q);
    const tilewise_tensor k = in_c(call.k);
    const tilewise_tensor v = in_c(call.v);
    const tilewise_tensor out = in_c(call.out);
    const tilewise_options said = in_c(how);
    return refusal_of(tilewise_attention(&q, &k, &v, &out, &said));
}

}  // namespace

std::string refusal_of(const std::function<void()>& call) {
    try {
        call();
        return {};
    } catch (const std::invalid_argument& error) { return error.what(); } catch (const std::bad_alloc&) {
        return no_memory;
    } catch (const std::exception& error) {
        report(std::string("an exception of the wrong type: ") + error.what());
    }
}

std::string refusal_of(tilewise_status status) {
    if (status == TILEWISE_OK) { return {}; }
    if (status == TILEWISE_OUT_OF_MEMORY) { return no_memory; }
    if (status != TILEWISE_INVALID_ARGUMENT) {
        report(std::string("status ") + std::to_string(status) + ": " + tilewise_last_error());
    }
    return tilewise_last_error();
}

tilewise_tensor in_c(const tilewise::const_tensor& view) {
    tilewise_tensor made{};
    made.data = const_cast<void*>(view.data);
    made.type = static_cast<tilewise_type>(view.type);
    std::copy(view.extents.begin(), view.extents.end(), made.extents);
    std::copy(view.strides.begin(), view.strides.end(), made.strides);
    made.scales = view.scales;
    std::copy(view.scale_strides.begin(), view.scale_strides.end(), made.scale_strides);
    return made;
}

bool can_be_said_in_c(const options& how) {
    return how.key_starts.empty() || how.query_starts.size() == how.key_starts.size();
}

tilewise_options in_c(const options& how) {
    tilewise_options made{};
    made.size = sizeof made;
    made.causal = static_cast<std::int32_t>(how.causal);
    made.arithmetic = static_cast<std::int32_t>(how.arithmetic);
    made.threads = how.threads;
    made.scratch_budget = how.scratch_budget;
    made.workspace = how.workspace.data();
    made.workspace_bytes = how.workspace.size();
    made.parallel_for = how.parallel_for.run;
    made.parallel_context = how.parallel_for.context;
    say_masks(how, made);
    say_scores(how, made);
    say_results(how, made);
    return made;
}

std::string compute(entry_point by, const call_view& call, const options& how) {
    if (by == entry_point::c && can_be_said_in_c(how)) { return compute_in_c(call, how); }
    if (by == entry_point::status) {
        const tilewise::status done = tilewise::try_attention(call.q, call.k, call.v, call.out, how);
        if (done.code == tilewise::status_code::internal_error) { report(done.message); }
        if (done.code == tilewise::status_code::out_of_memory) { return no_memory; }
        return done.is_ok() ? std::string() : done.message;
    }
    return refusal_of([&] { tilewise::attention(call.q, call.k, call.v, call.out, how); });
}

}  // namespace tilewise_tests

#include "c_values.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace tilewise {

namespace {

constexpr int count_of_types = 12;
static_assert(static_cast<int>(element_type::f64) == TILEWISE_F64 && TILEWISE_F64 == count_of_types - 1);
static_assert(static_cast<int>(element_type::bit) == TILEWISE_BIT);
static_assert(static_cast<int>(element_type::q8_0) == TILEWISE_Q8_0);
static_assert(static_cast<int>(element_type::i8) == TILEWISE_I8);
static_assert(static_cast<int>(element_type::i32) == TILEWISE_I32);
static_assert(static_cast<int>(causal::bottom_right) == TILEWISE_CAUSAL_BOTTOM_RIGHT);
static_assert(static_cast<int>(causal::top_left) == TILEWISE_CAUSAL_TOP_LEFT);

/// The first version's last member.
constexpr std::size_t least_size = offsetof(tilewise_options, parallel_context) + sizeof(void*);

template <class Value>
std::optional<Value> value_if(std::int32_t is_set, Value value) {
    return is_set != 0 ? std::optional(value) : std::nullopt;
}

/// Calls the function of C; the context is the options that have it.
void call_score_function(void* context, const score_tile& tile) noexcept {
    const tilewise_options& of = *static_cast<const tilewise_options*>(context);
    const tilewise_score_tile copy{tile.batch,          tile.head,      tile.first_query, tile.queries,
                                   tile.query_position, tile.first_key, tile.keys,        tile.scores,
                                   tile.query_stride,   tile.key_stride};
    of.score_function(of.score_context, &copy);
}

}  // namespace

bool read_tensor(std::string_view name, const tilewise_tensor& from, tensor& to) {
    if (from.reserved != 0) { return refuse(name, ": reserved is ", from.reserved, ", it must be 0"); }
    to.data = from.data;
    std::copy(std::begin(from.extents), std::end(from.extents), to.extents.begin());
    std::copy(std::begin(from.strides), std::end(from.strides), to.strides.begin());
    to.scales = from.scales;
    std::copy(std::begin(from.scale_strides), std::end(from.scale_strides), to.scale_strides.begin());
    return read_enumerator(name, from.type, count_of_types, to.type);
}

bool read_tensor(std::string_view name, const tilewise_tensor& from, const_tensor& to) {
    tensor view;
    if (!read_tensor(name, from, view)) { return false; }
    to = view;
    return true;
}

tilewise_tensor c_tensor_of(const tensor& from) {
    tilewise_tensor view{};
    view.data = from.data;
    view.type = static_cast<tilewise_type>(from.type);
    std::copy(from.extents.begin(), from.extents.end(), view.extents);
    std::copy(from.strides.begin(), from.strides.end(), view.strides);
    view.scales = from.scales;
    std::copy(from.scale_strides.begin(), from.scale_strides.end(), view.scale_strides);
    return view;
}

bool check_plan(const tilewise_plan* result) {
    if (!require_pointer("plan", result)) { return false; }
    if (result->size < sizeof(std::size_t)) {
        return refuse("plan: size is ", result->size, ", it must be sizeof(tilewise_plan)");
    }
    return true;
}

void write_plan(const plan& from, tilewise_plan* to) {
    const tilewise_plan all{to->size,
                            static_cast<tilewise_isa>(from.isa),
                            from.threads,
                            from.tasks,
                            from.chunk_keys,
                            from.panel_rows,
                            from.block_rows,
                            from.key_parts,
                            from.scratch_bytes_per_thread,
                            from.shared_scratch_bytes,
                            from.scratch_bytes,
                            from.visible_scores,
                            from.flops,
                            static_cast<std::int32_t>(from.arithmetic),
                            0};
    std::memcpy(to, &all, std::min(to->size, sizeof all));
}

bool c_options::read(const tilewise_options* how) {
    if (!read_structure("options", how, least_size, from_)) { return false; }
    if (from_.reserved != 0) { return refuse("options: reserved is ", from_.reserved, ", it must be 0"); }
    how_.scale = value_if(from_.has_scale, from_.scale);
    how_.scale_f64 = value_if(from_.has_scale_f64 != 0, from_.scale_f64);
    how_.threads = from_.threads;
    how_.scratch_budget = from_.scratch_budget;
    how_.workspace = {static_cast<std::byte*>(from_.workspace), from_.workspace_bytes};
    how_.parallel_for = {from_.parallel_for, from_.parallel_context};
    return read_enumerator("causal", from_.causal, 3, how_.causal) &&
           read_enumerator("arithmetic", from_.arithmetic, 2, how_.arithmetic) && read_positions() &&
           read_masks() && read_scores() && read_results();
}

bool c_options::read_positions() {
    how_.query_position = value_if(from_.has_query_position, from_.query_position);
    how_.key_position = from_.key_position;
    how_.window_left = value_if(from_.has_window_left, from_.window_left);
    how_.window_right = value_if(from_.has_window_right, from_.window_right);
    how_.prefix = from_.prefix;
    how_.attention_chunk = from_.attention_chunk;
    return read_span("documents", from_.documents, from_.document_count, how_.documents) &&
           read_span("key_lengths", from_.key_lengths, from_.key_length_count, how_.key_lengths) &&
           read_span("query_starts", from_.query_starts, from_.start_count, how_.query_starts) &&
           read_span("key_starts", from_.key_starts, from_.key_starts == nullptr ? 0 : from_.start_count,
                     how_.key_starts) &&
           read_span("key_positions", from_.key_positions, from_.key_position_count, how_.key_positions);
}

bool c_options::read_masks() {
    how_.blocks.query_block = from_.query_block;
    how_.blocks.key_block = from_.key_block;
    return read_tensor("ranges.first", from_.first_keys, how_.ranges.first) &&
           read_tensor("ranges.last", from_.last_keys, how_.ranges.last) &&
           read_tensor("mask", from_.mask, how_.mask) &&
           read_tensor("blocks", from_.blocks, how_.blocks.visible) &&
           read_tensor("block_table", from_.block_table, how_.block_table);
}

bool c_options::read_scores() {
    how_.soft_cap = from_.soft_cap;
    if (from_.score_function != nullptr) { how_.score_function = {call_score_function, &from_}; }
    return read_tensor("bias", from_.bias, how_.bias) &&
           read_span("alibi_slopes", from_.alibi_slopes, from_.alibi_slope_count, how_.alibi_slopes) &&
           read_span("sinks", from_.sinks, from_.sink_count, how_.sinks);
}

bool c_options::read_results() {
    extra_results& extra = how_.extra;
    return read_tensor("lse", from_.lse, how_.lse) &&
           read_tensor("extra.row_maximum", from_.row_maximum, extra.row_maximum) &&
           read_tensor("extra.entropy", from_.entropy, extra.entropy) &&
           read_tensor("extra.key_weights", from_.key_weights, extra.key_weights) &&
           read_span("extra.weight_rows", from_.weight_rows, from_.weight_row_count, extra.weight_rows) &&
           read_tensor("extra.weights", from_.weights, extra.weights);
}

}  // namespace tilewise

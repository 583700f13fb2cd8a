#include "c_values.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace tilewise {

namespace {

constexpr int count_of_types = 11;
static_assert(static_cast<int>(element_type::bit) == TILEWISE_BIT && TILEWISE_BIT == count_of_types - 1);
static_assert(static_cast<int>(element_type::q8_0) == TILEWISE_Q8_0);
static_assert(static_cast<int>(element_type::i8) == TILEWISE_I8);
static_assert(static_cast<int>(element_type::i32) == TILEWISE_I32);
static_assert(static_cast<int>(causal::bottom_right) == TILEWISE_CAUSAL_BOTTOM_RIGHT);
static_assert(static_cast<int>(causal::top_left) == TILEWISE_CAUSAL_TOP_LEFT);

/// The first version's last member.
constexpr std::size_t least_size = offsetof(tilewise_options, parallel_context) + sizeof(void*);

/// Any version's options in the form of this one. Members that only a later version has must be zeros.
tilewise_options in_this_version(const tilewise_options* how) {
    tilewise_options all{};
    if (how == nullptr) { return all; }
    if (how->size < least_size) {
        refuse("options: size is ", how->size, ", it must be sizeof(tilewise_options), ", sizeof all,
               " in this version");
    }
    std::memcpy(&all, how, std::min(how->size, sizeof all));
    const std::span bytes(reinterpret_cast<const std::byte*>(how), how->size);
    for (const std::byte byte : bytes.subspan(std::min(how->size, sizeof all))) {
        if (byte != std::byte{0}) {
            refuse("options: size is ", how->size, ", and members beyond ", sizeof all,
                   ", which are of a later version, are not 0");
        }
    }
    if (all.reserved != 0) { refuse("options: reserved is ", all.reserved, ", it must be 0"); }
    return all;
}

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

tensor tensor_of(std::string_view name, const tilewise_tensor& from) {
    tensor view;
    if (from.reserved != 0) { refuse(name, ": reserved is ", from.reserved, ", it must be 0"); }
    view.data = from.data;
    view.type = enumerator<element_type>(name, from.type, count_of_types);
    std::copy(std::begin(from.extents), std::end(from.extents), view.extents.begin());
    std::copy(std::begin(from.strides), std::end(from.strides), view.strides.begin());
    view.scales = from.scales;
    std::copy(std::begin(from.scale_strides), std::end(from.scale_strides), view.scale_strides.begin());
    return view;
}

tensor tensor_of(std::string_view name, const tilewise_tensor* from) {
    require_pointer(name, from);
    return tensor_of(name, *from);
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

c_options::c_options(const tilewise_options* how) : from_(in_this_version(how)) {
    how_.scale = value_if(from_.has_scale, from_.scale);
    how_.causal = enumerator<causal>("causal", from_.causal, 3);
    how_.arithmetic = enumerator<arithmetic>("arithmetic", from_.arithmetic, 1);
    how_.threads = from_.threads;
    how_.scratch_budget = from_.scratch_budget;
    how_.workspace = {static_cast<std::byte*>(from_.workspace), from_.workspace_bytes};
    how_.parallel_for = {from_.parallel_for, from_.parallel_context};
    read_masks();
    read_scores();
    read_results();
}

void c_options::read_masks() {
    how_.query_position = value_if(from_.has_query_position, from_.query_position);
    how_.key_position = from_.key_position;
    how_.window_left = value_if(from_.has_window_left, from_.window_left);
    how_.window_right = value_if(from_.has_window_right, from_.window_right);
    how_.prefix = from_.prefix;
    how_.attention_chunk = from_.attention_chunk;
    how_.documents = span_of("documents", from_.documents, from_.document_count);
    how_.key_lengths = span_of("key_lengths", from_.key_lengths, from_.key_length_count);
    how_.query_starts = span_of("query_starts", from_.query_starts, from_.start_count);
    how_.key_starts = span_of("key_starts", from_.key_starts, from_.start_count);
    how_.ranges = {tensor_of("ranges.first", from_.first_keys), tensor_of("ranges.last", from_.last_keys)};
    how_.mask = tensor_of("mask", from_.mask);
    how_.blocks = {tensor_of("blocks", from_.blocks), from_.query_block, from_.key_block};
}

void c_options::read_scores() {
    how_.soft_cap = from_.soft_cap;
    how_.bias = tensor_of("bias", from_.bias);
    how_.alibi_slopes = span_of("alibi_slopes", from_.alibi_slopes, from_.alibi_slope_count);
    how_.sinks = span_of("sinks", from_.sinks, from_.sink_count);
    if (from_.score_function != nullptr) { how_.score_function = {call_score_function, &from_}; }
}

void c_options::read_results() {
    how_.lse = tensor_of("lse", from_.lse);
    how_.extra.row_maximum = tensor_of("extra.row_maximum", from_.row_maximum);
    how_.extra.entropy = tensor_of("extra.entropy", from_.entropy);
    how_.extra.key_weights = tensor_of("extra.key_weights", from_.key_weights);
    how_.extra.weight_rows = span_of("extra.weight_rows", from_.weight_rows, from_.weight_row_count);
    how_.extra.weights = tensor_of("extra.weights", from_.weights);
}

}  // namespace tilewise

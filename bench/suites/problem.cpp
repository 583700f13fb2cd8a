#include "problem.hpp"

#include <algorithm>
#include <array>

namespace tilewise::suites {
namespace {

constexpr std::int64_t document_count = 8;
constexpr std::int64_t mask_block = 128;

/// [batch, heads, tokens, width] with the heads of a token side by side, or the tokens of a head.
const_tensor view(const void* data, element_type type, std::array<std::int64_t, 4> extents,
                  bool tokens_first) {
    const auto [batch, heads, tokens, width] = extents;
    const std::int64_t token_stride = tokens_first ? heads * width : width;
    const std::int64_t head_stride = tokens_first ? width : tokens * width;
    return {data, type, extents, {heads * tokens * width, head_stride, token_stride, 1}};
}

const_tensor whole(const storage& memory, element_type type, std::array<std::int64_t, 4> extents,
                   bool tokens_first) {
    return view(memory.data(), type, extents, tokens_first);
}

double pairs_below_diagonal(double n) { return n * (n + 1) / 2; }

}  // namespace

problem::problem(const shape& s) : s_(s) {
    place_tensors();
    place_result();
    set_scales();
    how_.threads = s.threads;
    how_.arithmetic = s.arithmetic;
    how_.scratch_budget = s.scratch_budget;
    set_mask();
}

void problem::place_tensors() {
    const shape& s = s_;
    if (s.rows == layout::packed_qkv) {
        // As of a fused projection of 16 query heads and 4 key heads.
        constexpr std::int64_t all_heads = 24;
        k_memory_ = storage(s.kv_type, s.batch * s.keys * all_heads * s.head_dim);
        const const_tensor all = whole(k_memory_, s.kv_type, {s.batch, all_heads, s.keys, s.head_dim}, true);
        q_ = all.slice(axis::heads, 0, s.heads);
        k_ = all.slice(axis::heads, 16, s.kv_heads);
        v_ = all.slice(axis::heads, 20, s.kv_heads);
        return;
    }
    const bool tokens_first = s.rows == layout::bshd || s.rows == layout::bshd_32_heads;
    const auto place = [&](storage& memory, element_type type, std::int64_t heads, std::int64_t tokens,
                           std::int64_t dim) {
        const std::int64_t all_heads = s.rows == layout::bshd_32_heads ? 32 : heads;
        const std::int64_t width = s.rows == layout::sliced_4kib_rows ? 1024 : dim;
        memory = storage(type, s.batch * all_heads * tokens * width);
        return whole(memory, type, {s.batch, all_heads, tokens, width}, tokens_first)
            .slice(axis::heads, 0, heads)
            .slice(axis::head_dim, 0, dim);
    };
    q_ = place(q_memory_, s.q_type, s.heads, s.queries, s.head_dim);
    k_ = place(k_memory_, s.kv_type, s.kv_heads, s.keys, s.head_dim);
    v_ = s.values_in_keys ? k_.slice(axis::head_dim, 0, s.value_dim)
                          : place(v_memory_, s.kv_type, s.kv_heads, s.keys, s.value_dim);
}

void problem::place_result() {
    const shape& s = s_;
    const element_type type = s.q_type == element_type::f64 ? element_type::f64 : element_type::f32;
    result_ = storage(type, s.batch * s.heads * s.queries * s.value_dim);
    const const_tensor read = whole(result_, type, {s.batch, s.heads, s.queries, s.value_dim}, false);
    out_ = {result_.data(), type, read.extents, read.strides};
}

void problem::set_scales() {
    const element_type type = s_.kv_type;
    if (!measure::has_scales(type)) { return; }
    scales_.assign(static_cast<std::size_t>(s_.batch * s_.kv_heads * s_.keys), 1.0F / 60.0F);
    const scales_per shared = type == element_type::i8 ? scales_per::token : scales_per::head;
    k_ = with_scales(k_, scales_.data(), shared);
    v_ = with_scales(v_, scales_.data(), shared);
}

void problem::set_mask() {
    const std::array<std::int64_t, 4> extents = {1, 1, s_.queries, s_.keys};
    const std::array<std::int64_t, 4> strides = {0, 0, s_.keys, 1};
    const bool causal = s_.mask == masking::causal || s_.mask == masking::window_1024 ||
                        s_.mask == masking::documents || s_.mask == masking::chunks_1024;
    if (causal) { how_.causal = causal::bottom_right; }
    switch (s_.mask) {
        case masking::no_mask:
        case masking::causal:
            break;
        case masking::window_1024:
            how_.window_left = 1023;
            break;
        case masking::documents:
            for (std::int64_t i = 0; i <= document_count; ++i) {
                documents_.push_back(s_.keys * i / document_count);
            }
            how_.documents = documents_;
            break;
        case masking::chunks_1024:
            how_.attention_chunk = 1024;
            break;
        case masking::all_true_mask:
        case masking::all_true_bits: {
            const bool bits = s_.mask == masking::all_true_bits;
            const std::int64_t bytes = s_.queries * s_.keys / (bits ? 8 : 1);
            mask_memory_ = storage(element_type::i8, bytes);
            std::fill_n(static_cast<std::uint8_t*>(mask_memory_.data()), bytes, std::uint8_t{0xff});
            how_.mask = const_tensor(mask_memory_.data(), bits ? element_type::bit : element_type::boolean,
                                     extents, strides);
            break;
        }
        case masking::block_mask: {
            const std::int64_t rows = (s_.queries + mask_block - 1) / mask_block;
            const std::int64_t columns = (s_.keys + mask_block - 1) / mask_block;
            for (std::int64_t i = 0; i < rows * columns; ++i) {
                blocks_.push_back((i / columns + i % columns) % 2 == 0);
            }
            how_.blocks = {const_tensor(blocks_.data(), element_type::boolean, {1, 1, rows, columns},
                                        {0, 0, columns, 1}),
                           mask_block, mask_block};
            break;
        }
        case masking::bias:
            mask_memory_ = storage(element_type::f32, s_.queries * s_.keys);
            how_.bias = const_tensor(mask_memory_.data(), element_type::f32, extents, strides);
            break;
        case masking::soft_cap:
            how_.soft_cap = 30.0F;
            break;
        case masking::alibi:
            per_head_.assign(static_cast<std::size_t>(s_.heads), 0.01F);
            how_.alibi_slopes = per_head_;
            break;
        case masking::sinks:
            per_head_.assign(static_cast<std::size_t>(s_.heads), 0.5F);
            how_.sinks = per_head_;
            break;
    }
}

double problem::visible_scores() const {
    const auto heads = static_cast<double>(s_.batch * s_.heads);
    const auto keys = static_cast<double>(s_.keys);
    switch (s_.mask) {
        // What the plan does not count; queries and keys are as many, and divide evenly.
        case masking::documents:
            return heads * document_count * pairs_below_diagonal(keys / document_count);
        case masking::chunks_1024:
            return heads * keys / 1024 * pairs_below_diagonal(1024);
        case masking::block_mask:
            return heads * static_cast<double>(s_.queries) * keys / 2;
        default:
            return plan().visible_scores;
    }
}

measure::work problem::least_work() const {
    const auto elements = [](const const_tensor& of) {
        return static_cast<double>(of.batch() * of.heads() * of.tokens()) *
               static_cast<double>(of.head_dim());
    };
    measure::work least;
    least.flops = 2.0 * static_cast<double>(s_.head_dim + s_.value_dim) * visible_scores();
    least.bytes = bytes_of(q_.type, elements(q_)) + bytes_of(k_.type, elements(k_)) +
                  bytes_of(out_.type, elements(out_));
    if (!s_.values_in_keys) { least.bytes += bytes_of(v_.type, elements(v_)); }
    if (how_.mask.data != nullptr) {
        least.bytes += bytes_of(how_.mask.type, static_cast<double>(s_.queries * s_.keys));
    }
    if (how_.bias.data != nullptr) { least.bytes += 4.0 * static_cast<double>(s_.queries * s_.keys); }
    least.memory = k_memory_.data();
    least.memory_bytes = k_memory_.bytes();
    least.more_memory = v_memory_.data();
    least.more_memory_bytes = v_memory_.bytes();
    return least;
}

std::shared_ptr<const problem> problem_of(const shape& s) {
    static shape last_shape;
    static std::shared_ptr<const problem> last;
    if (last == nullptr || !(last_shape == s)) {
        last.reset();  // before the next one needs memory
        last = std::make_shared<const problem>(s);
        last_shape = s;
    }
    return last;
}

}  // namespace tilewise::suites

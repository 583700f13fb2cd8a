#include "kv_pages.hpp"

#include <cstring>
#include <span>

#include <tilewise/half.hpp>
#include <tilewise/quantize.hpp>

#include "reference_elements.hpp"
#include "views.hpp"

namespace tilewise {

namespace {

template <class Number>
std::span<Number> numbers(std::byte* row, std::int64_t count) {
    return {reinterpret_cast<Number*>(row), static_cast<std::size_t>(count)};
}

}  // namespace

bool kv_pages::make(std::string_view name, element_type type, std::int64_t pages, std::int64_t heads,
                    std::int64_t tokens, std::int64_t dim) {
    type_ = type;
    pages_ = pages;
    heads_ = heads;
    tokens_ = tokens;
    dim_ = dim;
    if (type > element_type::e5m2) {
        return refuse(name, ": number ", static_cast<int>(type),
                      " given, it must be f32, f16, bf16, q8_0, q4_0, i8, e4m3 or e5m2");
    }
    const element_block block = block_of(type);
    if (dim % block.elements != 0) {
        return refuse(name, ": blocks of ", block.elements, " given, the dimension ", dim,
                      " must be a multiple of it");
    }
    if (__builtin_mul_overflow(dim / block.elements, block.bytes, &row_bytes_)) { return lack_memory(); }
    return rows_.allocate({pages, heads, tokens, row_bytes_}) &&
           (!has_scales(type) || scales_.allocate({pages, heads, tokens})) && row_.allocate({dim});
}

const_tensor kv_pages::view() const {
    const_tensor view(rows_.data(), type_, {pages_, heads_, tokens_, dim_},
                      {heads_ * tokens_ * dim_, tokens_ * dim_, dim_, 1});
    if (!has_scales(type_)) { return view; }
    view.scales = scales_.data();
    view.scale_strides = {heads_ * tokens_, tokens_, 1, 0};
    return view;
}

void kv_pages::store(std::int64_t page, std::int64_t token, const const_tensor& from, std::int64_t t) {
    for (std::int64_t head = 0; head < heads_; ++head) {
        for (std::int64_t i = 0; i < dim_; ++i) {
            const std::int64_t index = head * from.strides[1] + t * from.strides[2] + i * from.strides[3];
            row_[static_cast<std::size_t>(i)] = reference::read_element(from.data, from.type, index);
        }
        store_row((page * heads_ + head) * tokens_ + token);
    }
}

void kv_pages::store_row(std::int64_t number) {
    const std::span<const float> row(row_.data(), row_.size());
    std::byte* const to = rows_.data() + number * row_bytes_;
    float* const scale = scales_.empty() ? nullptr : scales_.data() + number;
    switch (type_) {
        case element_type::f32:
            std::memcpy(to, row_.data(), static_cast<std::size_t>(row_bytes_));
            break;
        case element_type::f16:
            for (std::int64_t i = 0; i < dim_; ++i) {
                numbers<float16>(to, dim_)[static_cast<std::size_t>(i)] =
                    float16(row_[static_cast<std::size_t>(i)]);
            }
            break;
        case element_type::bf16:
            for (std::int64_t i = 0; i < dim_; ++i) {
                numbers<bfloat16>(to, dim_)[static_cast<std::size_t>(i)] =
                    bfloat16(row_[static_cast<std::size_t>(i)]);
            }
            break;
        case element_type::q8_0:
            quantize_q8_0(row, numbers<q8_0_block>(to, dim_ / 32));
            break;
        case element_type::q4_0:
            quantize_q4_0(row, numbers<q4_0_block>(to, dim_ / 32));
            break;
        case element_type::i8:
            quantize_i8_per_token(row, numbers<std::int8_t>(to, dim_), {scale, 1});
            break;
        case element_type::e4m3:
            *scale = quantize_e4m3(row, numbers<float8_e4m3>(to, dim_));
            break;
        default:
            *scale = quantize_e5m2(row, numbers<float8_e5m2>(to, dim_));
            break;
    }
}

void kv_pages::copy(std::int64_t from, std::int64_t to, std::int64_t tokens) {
    for (std::int64_t head = 0; head < heads_; ++head) {
        const std::int64_t source = (from * heads_ + head) * tokens_;
        const std::int64_t target = (to * heads_ + head) * tokens_;
        std::memcpy(rows_.data() + target * row_bytes_, rows_.data() + source * row_bytes_,
                    static_cast<std::size_t>(tokens * row_bytes_));
        for (std::int64_t t = 0; t < tokens && !scales_.empty(); ++t) {
            scales_[static_cast<std::size_t>(target + t)] = scales_[static_cast<std::size_t>(source + t)];
        }
    }
}

std::size_t kv_pages::memory_bytes() const { return rows_.bytes() + scales_.bytes() + row_.bytes(); }

}  // namespace tilewise

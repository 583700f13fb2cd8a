// The vector loops of the naive opponent; compiled once per instruction set, with contraction allowed.
//
// They are what a competent person writes without a BLAS: products blocked so that their accumulators stay
// in registers, and a softmax in two passes over the row.

#include <cstdint>

#include "kernel_table.hpp"
#include "vector.hpp"

namespace tilewise::measure::TILEWISE_ISA {
namespace {

constexpr int row_block = 4;
constexpr int column_vectors = lanes == 16 ? 4 : 2;
constexpr int columns = column_vectors * lanes;

/// Accumulates row_block x columns products: out += scale * a[row_block, depth] * b[depth, columns].
/// Rows of a are a_stride apart; those of b, b_stride; those of out, out_stride.
TILEWISE_MEASURE_INLINE void multiply_block(const float* a, std::int64_t a_stride, const float* b,
                                            std::int64_t b_stride, float* out, std::int64_t out_stride,
                                            std::int64_t depth, float scale, bool accumulate) {
    vec total[row_block][column_vectors];
    TILEWISE_MEASURE_UNROLL
    for (auto& row : total) {
        TILEWISE_MEASURE_UNROLL
        for (vec& value : row) { value = broadcast(0.0F); }
    }
    for (std::int64_t i = 0; i < depth; ++i) {
        vec b_row[column_vectors];
        TILEWISE_MEASURE_UNROLL
        for (int c = 0; c < column_vectors; ++c) { b_row[c] = load(b + i * b_stride + c * lanes); }
        TILEWISE_MEASURE_UNROLL
        for (int r = 0; r < row_block; ++r) {
            const vec factor = broadcast(a[r * a_stride + i]);
            TILEWISE_MEASURE_UNROLL
            for (int c = 0; c < column_vectors; ++c) {
                total[r][c] = multiply_add(factor, b_row[c], total[r][c]);
            }
        }
    }
    const vec scales = broadcast(scale);
    const vec zero = broadcast(0.0F);
    TILEWISE_MEASURE_UNROLL
    for (int r = 0; r < row_block; ++r) {
        TILEWISE_MEASURE_UNROLL
        for (int c = 0; c < column_vectors; ++c) {
            float* to = out + r * out_stride + c * lanes;
            store(to, multiply_add(total[r][c], scales, accumulate ? load(to) : zero));
        }
    }
}

/// The same for a block of any size, one product at a time: the edges.
void multiply_edge(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* out,
                   std::int64_t out_stride, std::int64_t rows, std::int64_t width, std::int64_t depth,
                   float scale, bool accumulate) {
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < width; ++c) {
            float total = 0.0F;
            for (std::int64_t i = 0; i < depth; ++i) { total += a[r * a_stride + i] * b[i * b_stride + c]; }
            float* to = out + r * out_stride + c;
            *to = total * scale + (accumulate ? *to : 0.0F);
        }
    }
}

std::int64_t packed_floats(std::int64_t head_dim) { return head_dim * columns; }

void scores(const float* q, const float* k, float* scores_out, std::int64_t score_stride, std::int64_t rows,
            std::int64_t n_keys, std::int64_t head_dim, float scale, float* packed) {
    for (std::int64_t key = 0; key < n_keys; key += columns) {
        const std::int64_t width = n_keys - key < columns ? n_keys - key : columns;
        for (std::int64_t c = 0; c < columns; ++c) {
            for (std::int64_t i = 0; i < head_dim; ++i) {
                packed[i * columns + c] = c < width ? k[(key + c) * head_dim + i] : 0.0F;
            }
        }
        std::int64_t row = 0;
        if (width == columns) {
            for (; row + row_block <= rows; row += row_block) {
                multiply_block(q + row * head_dim, head_dim, packed, columns,
                               scores_out + row * score_stride + key, score_stride, head_dim, scale, false);
            }
        }
        multiply_edge(q + row * head_dim, head_dim, packed, columns, scores_out + row * score_stride + key,
                      score_stride, rows - row, width, head_dim, scale, false);
    }
}

void values(const float* weights, const float* v, float* out, std::int64_t score_stride, std::int64_t rows,
            std::int64_t n_keys, std::int64_t value_dim) {
    // A block of keys whose values stay in the second-level cache while all rows pass.
    constexpr std::int64_t key_block = 256;
    for (std::int64_t i = 0; n_keys == 0 && i < rows * value_dim; ++i) { out[i] = 0.0F; }
    for (std::int64_t key = 0; key < n_keys; key += key_block) {
        const std::int64_t depth = n_keys - key < key_block ? n_keys - key : key_block;
        const std::int64_t whole_rows = rows - rows % row_block;
        const std::int64_t whole_columns = value_dim - value_dim % columns;
        const float* v_block = v + key * value_dim;
        for (std::int64_t row = 0; row < whole_rows; row += row_block) {
            for (std::int64_t c = 0; c < whole_columns; c += columns) {
                multiply_block(weights + row * score_stride + key, score_stride, v_block + c, value_dim,
                               out + row * value_dim + c, value_dim, depth, 1.0F, key > 0);
            }
        }
        multiply_edge(weights + key, score_stride, v_block + whole_columns, value_dim, out + whole_columns,
                      value_dim, whole_rows, value_dim - whole_columns, depth, 1.0F, key > 0);
        multiply_edge(weights + whole_rows * score_stride + key, score_stride, v_block, value_dim,
                      out + whole_rows * value_dim, value_dim, rows - whole_rows, value_dim, depth, 1.0F,
                      key > 0);
    }
}

/// e^x for x <= 0, with an error of a few ulp; 0 below -87, where the result would be subnormal. The
/// polynomial is that of Cephes' expf (Stephen L. Moshier).
TILEWISE_MEASURE_INLINE vec exponential(vec x) {
    const vec lowest = broadcast(-87.0F);
    const vec bounded = maximum(x, lowest);
    const vec shifted = multiply_add(bounded, broadcast(0x1.715476p+0F), broadcast(0x1.8p23F));
    const vec whole = subtract(shifted, broadcast(0x1.8p23F));
    const vec rest = multiply_add(whole, broadcast(2.12194440e-4F),
                                  multiply_add(whole, broadcast(-0.693359375F), bounded));
    vec y = broadcast(1.9875691500e-4F);
    y = multiply_add(y, rest, broadcast(1.3981999507e-3F));
    y = multiply_add(y, rest, broadcast(8.3334519073e-3F));
    y = multiply_add(y, rest, broadcast(4.1665795894e-2F));
    y = multiply_add(y, rest, broadcast(1.6666665459e-1F));
    y = multiply_add(y, rest, broadcast(5.0000001201e-1F));
    y = multiply_add(y, rest, broadcast(1.0F));
    y = multiply_add(y, rest, broadcast(1.0F));
    return zero_where_less(x, lowest, scale_by_power(y, shifted));
}

float sum_of(vec values) {
    float stored[lanes];
    store(stored, values);
    float total = 0.0F;
    for (const float value : stored) { total += value; }
    return total;
}

float largest_of(vec values) {
    float stored[lanes];
    store(stored, values);
    float largest = stored[0];
    for (const float value : stored) { largest = value > largest ? value : largest; }
    return largest;
}

float softmax(float* row, std::int64_t visible, std::int64_t columns_in_row) {
    for (std::int64_t j = visible; j < columns_in_row; ++j) {
        row[j] = visible > 0 ? -__builtin_inff() : 0.0F;
    }
    if (visible == 0) { return 0.0F; }
    vec largest = load(row);
    for (std::int64_t j = lanes; j < columns_in_row; j += lanes) {
        largest = maximum(largest, load(row + j));
    }
    largest = broadcast(largest_of(largest));
    vec sum = broadcast(0.0F);
    for (std::int64_t j = 0; j < columns_in_row; j += lanes) {
        const vec weights = exponential(subtract(load(row + j), largest));
        store(row + j, weights);
        sum = add(sum, weights);
    }
    return sum_of(sum);
}

}  // namespace

extern const naive_kernels naive_table;
const naive_kernels naive_table = {scores, softmax, values, packed_floats};

}  // namespace tilewise::measure::TILEWISE_ISA

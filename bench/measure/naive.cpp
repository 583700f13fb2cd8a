#include "naive.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>

#include "clock.hpp"
#include "isa_tables.hpp"

#if defined(TILEWISE_HAVE_OPENBLAS)
#    include <cblas.h>
#endif

namespace tilewise::measure {
namespace {

constexpr std::int64_t line = 16;  // floats of a cache line

std::int64_t columns_for(std::int64_t n_keys) { return (n_keys + line - 1) / line * line; }

/// Rows are not a multiple of 4 KiB apart, or the same column of many rows would fall into one set of the
/// cache.
std::int64_t score_stride_for(std::int64_t n_keys) {
    const std::int64_t columns = columns_for(n_keys);
    return columns % 1024 == 0 ? columns + line : columns;
}

std::int64_t packed_floats_for(const naive_shape& shape, naive_products products, isa which) {
    if (products == naive_products::openblas) { return 0; }
    return (naive_kernels_of(which).packed_floats(shape.head_dim) + 15) / 16 * 16;
}

std::size_t multiply(std::size_t a, std::size_t b) {
    if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) { throw std::bad_alloc(); }
    return a * b;
}

std::size_t score_floats(const naive_shape& shape) {
    return multiply(static_cast<std::size_t>(shape.n_queries),
                    static_cast<std::size_t>(score_stride_for(shape.n_keys)));
}

#if defined(TILEWISE_HAVE_OPENBLAS)
/// "0.3.21" of "OpenBLAS 0.3.21 DYNAMIC_ARCH ...".
std::string openblas_version() {
    std::istringstream words(openblas_get_config());
    std::string name;
    std::string version;
    words >> name >> version;
    return version;
}
#endif

double race(naive_products products, isa which, std::int64_t head_dim) {
    const std::int64_t tokens = 384;
    const naive_shape shape{1, 1, 1, tokens, tokens, head_dim, head_dim, false, 0.125F};
    const std::vector<float> input(static_cast<std::size_t>(tokens * head_dim), 0.5F);
    std::vector<float> out(input.size());
    naive_attention attention(shape, products, which, 1);
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) {
        const stopwatch watch(1);
        attention.run(input.data(), input.data(), input.data(), out.data());
        best = std::min(best, watch.elapsed().cpu);
    }
    return best;
}

}  // namespace

bool has_openblas() {
#if defined(TILEWISE_HAVE_OPENBLAS)
    return true;
#else
    return false;
#endif
}

std::string naive_products_name(naive_products products, isa which) {
#if defined(TILEWISE_HAVE_OPENBLAS)
    if (products == naive_products::openblas) {
        return "OpenBLAS " + openblas_version() + " (" + openblas_get_corename() + " kernels)";
    }
#endif
    static_cast<void>(products);
    return "own loops (" + std::string(isa_name(which)) + ")";
}

naive_products faster_naive_products(isa which, std::int64_t head_dim) {
    if (!has_openblas()) { return naive_products::loops; }
    const bool faster =
        race(naive_products::openblas, which, head_dim) <= race(naive_products::loops, which, head_dim);
    return faster ? naive_products::openblas : naive_products::loops;
}

std::size_t naive_scratch_bytes(const naive_shape& shape, naive_products products, isa which, int threads) {
    const auto packed = static_cast<std::size_t>(packed_floats_for(shape, products, which) * threads);
    const auto sums = static_cast<std::size_t>(shape.n_queries);
    return multiply(score_floats(shape) + packed + sums, sizeof(float));
}

naive_attention::naive_attention(const naive_shape& shape, naive_products products, isa which, int threads)
    : shape_(shape),
      products_(products),
      isa_(which),
      threads_(threads),
      score_stride_(score_stride_for(shape.n_keys)),
      packed_floats_(packed_floats_for(shape, products, which)),
      scratch_bytes_(naive_scratch_bytes(shape, products, which, threads)),
      inverse_sums_(static_cast<std::size_t>(shape.n_queries)) {
    if (products == naive_products::openblas && !has_openblas()) {
        throw std::invalid_argument("tilewise: this build has no OpenBLAS");
    }
#if defined(TILEWISE_HAVE_OPENBLAS)
    // One thread per call: the rows are divided among threads here.
    openblas_set_num_threads(1);
#endif
    scores_ = allocate_aligned(score_floats(shape));
    packed_ = allocate_aligned(static_cast<std::size_t>(packed_floats_ * threads));
    std::fill_n(packed_.get(), packed_floats_ * threads, 0.0F);
    // Each thread writes to the rows that it will use.
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; ++part) {
        float* first = scores_.get() + shape_.n_queries * part / threads * score_stride_;
        float* last = scores_.get() + shape_.n_queries * (part + 1) / threads * score_stride_;
        std::fill(first, last, 0.0F);
    }
}

void naive_attention::attend_rows(const float* q, const float* k, const float* v, float* out,
                                  std::int64_t first, std::int64_t rows, float* packed) {
    const naive_kernels& kernels = naive_kernels_of(isa_);
    const naive_shape& s = shape_;
    float* scores = scores_.get() + first * score_stride_;
    float* inverse_sums = inverse_sums_.data() + first;

#if defined(TILEWISE_HAVE_OPENBLAS)
    const auto small = [](std::int64_t extent) { return static_cast<blasint>(extent); };
    if (products_ == naive_products::openblas) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, small(rows), small(s.n_keys), small(s.head_dim),
                    s.scale, q, small(s.head_dim), k, small(s.head_dim), 0.0F, scores, small(score_stride_));
    } else
#endif
    {
        kernels.scores(q, k, scores, score_stride_, rows, s.n_keys, s.head_dim, s.scale, packed);
    }

    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t last_seen = s.causal ? first + row + s.n_keys - s.n_queries : s.n_keys - 1;
        const std::int64_t visible = std::clamp<std::int64_t>(last_seen + 1, 0, s.n_keys);
        const float sum = kernels.softmax(scores + row * score_stride_, visible, columns_for(s.n_keys));
        inverse_sums[row] = visible == 0 ? 0.0F : 1.0F / sum;
    }

#if defined(TILEWISE_HAVE_OPENBLAS)
    if (products_ == naive_products::openblas) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, small(rows), small(s.value_dim),
                    small(s.n_keys), 1.0F, scores, small(score_stride_), v, small(s.value_dim), 0.0F, out,
                    small(s.value_dim));
    } else
#endif
    {
        kernels.values(scores, v, out, score_stride_, rows, s.n_keys, s.value_dim);
    }
    for (std::int64_t row = 0; row < rows; ++row) {
        const float factor = inverse_sums[row];
        for (std::int64_t x = 0; x < s.value_dim; ++x) { out[row * s.value_dim + x] *= factor; }
    }
}

void naive_attention::run(const float* q, const float* k, const float* v, float* out) {
    const naive_shape& s = shape_;
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (int part = 0; part < threads_; ++part) {
        const std::int64_t first = s.n_queries * part / threads_;
        const std::int64_t rows = s.n_queries * (part + 1) / threads_ - first;
        if (rows == 0) { continue; }
        for (std::int64_t index = 0; index < s.batch * s.heads; ++index) {
            const std::int64_t kv_index =
                index / s.heads * s.kv_heads + index % s.heads / (s.heads / s.kv_heads);
            attend_rows(q + (index * s.n_queries + first) * s.head_dim, k + kv_index * s.n_keys * s.head_dim,
                        v + kv_index * s.n_keys * s.value_dim,
                        out + (index * s.n_queries + first) * s.value_dim, first, rows,
                        packed_.get() + part * packed_floats_);
        }
    }
}

}  // namespace tilewise::measure

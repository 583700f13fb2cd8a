// How fast each part of the kernels is, alone, with one tile of 128 keys in the cache; suites/series.hpp says
// what the columns are. Rows: PART/ISA/d:D/..., with the vectors of query rows of a panel or the query rows
// of a narrow one, or the type that is decoded.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <tilewise/isa.hpp>

#include "../suites/series.hpp"
#include "aligned_buffer.hpp"
#include "part_table.hpp"
#include "stored.hpp"

// TILEWISE_ISAS comes from CMake: X(name) for every instruction set that the build has.
#define X(name)                                  \
    namespace tilewise::kernels::name {          \
    extern const parts::part_table kernel_parts; \
    }
TILEWISE_ISAS
#undef X

namespace {

using tilewise::element_type;
using tilewise::isa;
using tilewise::parts::part_table;
using tilewise::parts::tile_memory;
namespace measure = tilewise::measure;
namespace suites = tilewise::suites;

const part_table& parts_of(isa which) {
    switch (which) {
#define X(name)     \
    case isa::name: \
        return tilewise::kernels::name::kernel_parts;
        TILEWISE_ISAS
#undef X
        default:
            std::abort();  // not in this build, so never available
    }
}

/// What tile_memory points at.
class tile_buffers {
public:
    tile_buffers(const part_table& parts, std::int64_t dim, element_type type) {
        constexpr std::int64_t keys = 128;
        const std::int64_t rows = 3 * parts.lanes;
        const std::int64_t stride = parts.stride(dim);
        std::vector<float> numbers(static_cast<std::size_t>(keys * dim));
        std::uint32_t state = 1;
        for (float& number : numbers) {
            state = state * 1664525U + 1013904223U;
            number = static_cast<float>(state >> 8) * 0x1p-24F;
        }
        stored_ = measure::stored_as(type, numbers);
        stored_.resize(stored_.size() + 64);
        memory_ = {keys,
                   dim,
                   take(dim * rows),
                   take(keys * stride),
                   take((keys + 16) * rows),
                   take((dim + 16) * rows),
                   take(7 * rows),
                   take(parts.lanes * (128 + stride)),
                   stored_.data(),
                   nullptr,
                   type};
        const bool scaled =
            type == element_type::i8 || type == element_type::e4m3 || type == element_type::e5m2;
        if (scaled) { memory_.scales = take(keys); }
    }

    [[nodiscard]] const tile_memory& get() const { return memory_; }

private:
    /// Numbers from 0 to 1, as weights are.
    float* take(std::int64_t floats) {
        const auto count = static_cast<std::size_t>(floats + 1024) / 1024 * 1024;
        buffers_.push_back(measure::allocate_aligned(count));
        float* const all = buffers_.back().get();
        for (std::size_t i = 0; i < count; ++i) {
            all[i] = 0.25F + 0.5F * static_cast<float>(i % 127) / 127.0F;
        }
        return all;
    }

    std::vector<measure::aligned_buffer> buffers_;
    std::vector<std::byte> stored_;
    tile_memory memory_{};
};

using run_part = void (*)(const part_table&, const tile_memory&, int);

struct part {
    std::string name;
    isa which{};
    std::int64_t dim = 0;
    int n = 0;
    element_type type = element_type::f32;
    run_part run = nullptr;
    double flops = 0;
    double bytes = 0;
};

void time_part(benchmark::State& state, const part& p) {
    const part_table& parts = parts_of(p.which);
    const tile_buffers buffers(parts, p.dim, p.type);
    const tile_memory& memory = buffers.get();
    const auto tile_bytes = static_cast<std::size_t>(memory.keys * memory.dim) * sizeof(float);
    const measure::work least{p.flops, p.bytes, memory.rows, tile_bytes, nullptr, 0};
    suites::time_call(state, {.run = [&] { p.run(parts, memory, p.n); }, .least = least, .isa = p.which});
}

void add(const part& p) {
    benchmark::RegisterBenchmark(p.name.c_str(), time_part, p)->Unit(benchmark::kMicrosecond);
}

/// Multiply-adds that the exponential of a score costs, counting every instruction that runs where they do.
constexpr double softmax_operations = 10;

void add_parts(isa which, std::int64_t dim) {
    const part_table& parts = parts_of(which);
    const auto name = [&](const char* of, const std::string& rest) {
        return std::string(of) + "/" + std::string(tilewise::isa_name(which)) + "/d:" + std::to_string(dim) +
               "/" + rest;
    };
    const double products = 2.0 * 128 * static_cast<double>(dim);
    const double tile_bytes = 4.0 * 128 * static_cast<double>(dim);
    for (int n = 1; n <= 3; ++n) {
        const double rows = n * parts.lanes;
        const std::string vectors = "vectors:" + std::to_string(n);
        add({name("scores", vectors), which, dim, n, element_type::f32,
             [](const part_table& t, const tile_memory& m, int k) { t.scores(m, k); }, products * rows,
             tile_bytes});
        add({name("values", vectors), which, dim, n, element_type::f32,
             [](const part_table& t, const tile_memory& m, int k) { t.values(m, k); }, products * rows,
             tile_bytes});
        if (dim != 128) { continue; }
        add({name("softmax", vectors), which, dim, n, element_type::f32,
             [](const part_table& t, const tile_memory& m, int k) { t.softmax(m, k); },
             2 * softmax_operations * 128 * rows, 4.0 * 128 * rows});
    }
    for (const element_type type :
         {element_type::f32, element_type::f16, element_type::bf16, element_type::q8_0, element_type::q4_0}) {
        for (int n = 1; n <= parts.most_narrow_rows; ++n) {
            const std::string rows = std::string(measure::name_of(type)) + "/rows:" + std::to_string(n);
            const double bytes = measure::bytes_of(type, tile_bytes / 4);
            add({name("narrow_scores", rows), which, dim, n, type,
                 [](const part_table& t, const tile_memory& m, int k) { t.narrow_scores(m, k); },
                 products * n, bytes});
            add({name("narrow_values", rows), which, dim, n, type,
                 [](const part_table& t, const tile_memory& m, int k) { t.narrow_values(m, k); },
                 products * n, bytes});
        }
    }
    for (const element_type type :
         {element_type::f32, element_type::f16, element_type::bf16, element_type::q8_0, element_type::q4_0,
          element_type::i8, element_type::e4m3, element_type::e5m2}) {
        add({name("decode", measure::name_of(type)), which, dim, 0, type,
             [](const part_table& t, const tile_memory& m, int) { t.decode(m); }, 0,
             measure::bytes_of(type, tile_bytes / 4) + tile_bytes});
    }
}

}  // namespace

int main(int argc, char** argv) {
    for (const isa which : tilewise::available_isas()) {
        for (const std::int64_t dim : {64, 128}) { add_parts(which, dim); }
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 2; }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

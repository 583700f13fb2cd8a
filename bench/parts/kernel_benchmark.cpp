// How fast each part of the kernels is, alone, with one tile of 128 keys in the cache; suites/series.hpp says
// what the columns are. Rows: PART/ISA/NUMBERS/d:D/..., with what the kernels compute with (f32, f64, or bf16
// for arithmetic::fastest), and then
//   scores, softmax, values              vectors of query rows of a panel
//   narrow_scores, narrow_values         the type of keys and values, and query rows of a narrow panel
//   key_tile, value_tile                 the type that is copied or converted; in pages of 16 keys; or
//                                        where rows are those of one of 8 heads side by side

#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <tilewise/half.hpp>
#include <tilewise/isa.hpp>

#include "../suites/series.hpp"
#include "aligned_buffer.hpp"
#include "fma_peak.hpp"
#include "part_table.hpp"
#include "stored.hpp"

// TILEWISE_TABLES comes from CMake: X(isa, numbers, name) for every compilation of the kernels.
#define X(isa, with, name)                       \
    namespace tilewise::kernels::name {          \
    extern const parts::part_table kernel_parts; \
    }
TILEWISE_TABLES
#undef X

namespace {

using tilewise::element_type;
using tilewise::isa;
using tilewise::parts::part_table;
using tilewise::parts::tile_memory;
namespace measure = tilewise::measure;
namespace suites = tilewise::suites;
using measure::numbers;

constexpr std::int64_t keys = 128;

/// One compilation of the kernels.
struct compiled_parts {
    std::string_view isa_name;
    numbers with;
    std::string_view numbers_name;
    const part_table* parts;
};

const compiled_parts all_parts[] = {
#define X(isa, with, name) {#isa, numbers::with, #with, &tilewise::kernels::name::kernel_parts},
    TILEWISE_TABLES
#undef X
};

/// Where the rows of a tile lie.
enum class placing : std::uint8_t { dense, paged, one_of_8_heads };

const char* name_of(placing rows) {
    switch (rows) {
        case placing::dense:
            return "";
        case placing::paged:
            return ":paged";
        default:
            return ":one_of_8_heads";
    }
}

using run_part = void (*)(const part_table&, const tile_memory&, int);

struct part {
    std::string name;
    isa which{};
    const compiled_parts* from = nullptr;
    numbers peak{};
    std::int64_t dim = 0;
    int n = 0;
    element_type type = element_type::f32;
    placing rows = placing::dense;
    run_part run = nullptr;
    double flops = 0;
    double bytes = 0;
};

/// What tile_memory points at.
class tile_buffers {
public:
    explicit tile_buffers(const part& p) : f64_(p.from->with == numbers::f64) {
        const part_table& parts = *p.from->parts;
        const std::int64_t rows = 3 * parts.lanes;
        const std::int64_t stride = parts.stride(p.dim);
        memory_.keys = keys;
        memory_.dim = p.dim;
        memory_.type = p.type;
        memory_.q = take(p.dim * rows);
        memory_.rows = take(keys * stride);
        memory_.scores = take((keys + 16) * rows);
        memory_.out = take((p.dim + 16) * rows);
        memory_.state = take(7 * rows);
        memory_.scratch = take(parts.lanes * (128 + stride));
        store_rows(p);
    }

    [[nodiscard]] const tile_memory& get() const { return memory_; }

private:
    static constexpr std::int64_t page_keys = 16;

    void store_rows(const part& p) {
        memory_.token_stride = p.rows == placing::one_of_8_heads ? 8 * p.dim : p.dim;
        std::vector<float> values(static_cast<std::size_t>(keys * memory_.token_stride));
        std::uint32_t state = 1;
        for (float& value : values) {
            state = state * 1664525U + 1013904223U;
            value = static_cast<float>(state >> 8) * 0x1p-24F;
        }
        stored_ = measure::stored_as(p.type, values);
        stored_.resize(stored_.size() + 64);
        memory_.stored = stored_.data();
        if (p.rows == placing::paged) {
            pages_.resize(keys / page_keys);
            std::iota(pages_.rbegin(), pages_.rend(), 0);
            memory_.pages = pages_.data();
            memory_.page_keys = page_keys;
        }
        if (!measure::has_scales(p.type)) { return; }
        scales_.assign(keys, 0.5F);
        memory_.scales = scales_.data();
    }

    /// From 0.25 to 0.75, as weights are, also where two of them are read as bf16: of 8 bits only.
    void* take(std::int64_t count) {
        const auto bytes = static_cast<std::size_t>(count) * (f64_ ? sizeof(double) : sizeof(float));
        const std::size_t floats = (bytes / sizeof(float) + 1024) / 1024 * 1024;
        buffers_.push_back(measure::allocate_aligned(floats));
        float* const all = buffers_.back().get();
        for (std::size_t i = 0; i < floats; ++i) {
            const double value = 0.25 + 0.5 * static_cast<double>(i % 127) / 127.0;
            if (!f64_) {
                const auto half = std::uint32_t{tilewise::bfloat16(static_cast<float>(value)).bits};
                all[i] = std::bit_cast<float>(half << 16 | half);
            } else if (i < floats / 2) {
                std::memcpy(all + 2 * i, &value, sizeof value);
            }
        }
        return all;
    }

    bool f64_;
    std::vector<measure::aligned_buffer> buffers_;
    std::vector<std::byte> stored_;
    std::vector<std::int32_t> pages_;
    std::vector<float> scales_;
    tile_memory memory_{};
};

void time_part(benchmark::State& state, const part& p) {
    const part_table& parts = *p.from->parts;
    const tile_buffers buffers(p);
    const tile_memory& memory = buffers.get();
    const auto tile_bytes = static_cast<std::size_t>(keys * p.dim) * sizeof(float);
    const measure::work least{p.flops, p.bytes, memory.rows, tile_bytes, nullptr, 0};
    suites::time_call(
        state, {.run = [&] { p.run(parts, memory, p.n); }, .least = least, .isa = p.which, .peak = p.peak});
}

/// The parts of one compilation of the kernels, with one head dimension.
class part_list {
public:
    part_list(isa which, const compiled_parts& from, std::int64_t dim)
        : which_(which), from_(from), parts_(*from.parts), dim_(dim) {}

    void add_panels() const {
        for (int n = parts_.vector_multiple; n <= parts_.most_vectors; n += parts_.vector_multiple) {
            const std::string vectors = "vectors:" + std::to_string(n);
            const double rows = n * parts_.lanes;
            part p = named("scores", vectors);
            p.n = n;
            p.flops = products() * rows;
            p.bytes = number_bytes() * tile_elements();
            p.run = [](const part_table& t, const tile_memory& m, int k) { t.scores(m, k); };
            add(p);
            p.name = name_of("values", vectors);
            p.run = [](const part_table& t, const tile_memory& m, int k) { t.values(m, k); };
            add(p);
            if (dim_ != 128) { continue; }
            p.name = name_of("softmax", vectors);
            // With pairs of bf16, too, the exponential is made of f32 multiply-adds.
            p.peak = from_.with == numbers::bf16 ? numbers::f32 : from_.with;
            p.flops = 2.0 * parts_.softmax_operations * keys * rows;
            p.bytes = real_bytes() * keys * rows;
            p.run = [](const part_table& t, const tile_memory& m, int k) { t.softmax(m, k); };
            add(p);
        }
    }

    void add_narrow_panels() const {
        for (const element_type type : types({element_type::f32, element_type::f16, element_type::bf16,
                                              element_type::q8_0, element_type::q4_0})) {
            for (int n = 1; n <= parts_.most_narrow_rows; ++n) {
                const std::string rows = std::string(measure::name_of(type)) + "/rows:" + std::to_string(n);
                part p = named("narrow_scores", rows);
                p.n = n;
                p.type = type;
                p.flops = products() * n;
                p.bytes = measure::bytes_of(type, tile_elements());
                p.run = [](const part_table& t, const tile_memory& m, int k) { t.narrow_scores(m, k); };
                add(p);
                p.name = name_of("narrow_values", rows);
                p.run = [](const part_table& t, const tile_memory& m, int k) { t.narrow_values(m, k); };
                add(p);
            }
        }
    }

    void add_tile_sources() const {
        for (const element_type type :
             types({element_type::f32, element_type::f16, element_type::bf16, element_type::q8_0,
                    element_type::q4_0, element_type::i8, element_type::e4m3, element_type::e5m2})) {
            for (const placing rows : {placing::dense, placing::paged, placing::one_of_8_heads}) {
                const std::string what = std::string(measure::name_of(type)) + ::name_of(rows);
                part p = named("key_tile", what);
                p.type = type;
                p.rows = rows;
                p.bytes = measure::bytes_of(type, tile_elements()) + number_bytes() * tile_elements();
                p.run = [](const part_table& t, const tile_memory& m, int) { t.load_keys(m); };
                add(p);
                if (from_.with != numbers::bf16) { continue; }  // otherwise the same
                p.name = name_of("value_tile", what);
                p.run = [](const part_table& t, const tile_memory& m, int) { t.load_values(m); };
                add(p);
            }
        }
    }

private:
    [[nodiscard]] std::string name_of(const char* of, const std::string& rest) const {
        return std::string(of) + "/" + std::string(from_.isa_name) + "/" + std::string(from_.numbers_name) +
               "/d:" + std::to_string(dim_) + "/" + rest;
    }
    [[nodiscard]] part named(const char* of, const std::string& rest) const {
        part p;
        p.name = name_of(of, rest);
        p.which = which_;
        p.from = &from_;
        p.peak = from_.with;
        p.dim = dim_;
        return p;
    }
    static void add(const part& p) {
        benchmark::RegisterBenchmark(p.name.c_str(), time_part, p)->Unit(benchmark::kMicrosecond);
    }

    /// Those that these kernels read: pairs only bf16, and f64 only itself.
    [[nodiscard]] std::vector<element_type> types(std::vector<element_type> of_f32) const {
        if (from_.with == numbers::bf16) { return {element_type::bf16}; }
        if (from_.with == numbers::f64) { return {element_type::f64}; }
        return of_f32;
    }
    [[nodiscard]] double tile_elements() const { return static_cast<double>(keys * dim_); }
    [[nodiscard]] double products() const { return 2.0 * tile_elements(); }
    [[nodiscard]] double real_bytes() const { return from_.with == numbers::f64 ? 8.0 : 4.0; }
    /// Of what is multiplied.
    [[nodiscard]] double number_bytes() const { return from_.with == numbers::bf16 ? 2.0 : real_bytes(); }

    isa which_;
    const compiled_parts& from_;
    const part_table& parts_;
    std::int64_t dim_;
};

void add_parts(isa which) {
    tilewise::force_isa(which);
    for (const compiled_parts& from : all_parts) {
        if (from.isa_name != tilewise::isa_name(which)) { continue; }
        if (from.with == numbers::bf16 && !measure::has_bf16_products()) { continue; }
        for (const std::int64_t dim : {64, 128}) {
            const part_list parts(which, from, dim);
            parts.add_panels();
            parts.add_narrow_panels();
            parts.add_tile_sources();
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    for (const isa which : tilewise::available_isas()) { add_parts(which); }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 2; }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}

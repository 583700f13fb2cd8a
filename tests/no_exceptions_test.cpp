// A program compiled without exceptions and run-time types uses all headers, and gets errors as values: wrong
// arguments, and memory that runs out at every single allocation. It runs with a library that is compiled
// with exceptions, and with one that is not.

#include <tilewise.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <tilewise/tilewise.hpp>
#include <vector>

#if defined(__cpp_exceptions) || defined(__GXX_RTTI)
#    error "this test is to be compiled without both"
#endif

namespace {

int failures = 0;

void check(bool is_right, const char* what) {
    if (is_right) { return; }
    std::printf("failed: %s\n", what);
    ++failures;
}

/// Allocations that still succeed.
constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
std::int64_t successes_left = all;
std::int64_t blocks = 0;
/// Nothing that returns a status may ask for memory by what cannot return a failure.
bool may_not_fail = false;

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (successes_left != all && successes_left-- <= 0) { return nullptr; }
    void* const memory = alignment <= alignof(std::max_align_t)
                             ? std::malloc(bytes == 0 ? 1 : bytes)
                             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory != nullptr) { ++blocks; }
    return memory;
}

void* allocate_or_end(std::size_t bytes) {
    check(!may_not_fail, "memory asked for that cannot be refused");
    void* const memory = allocate(bytes, 1);
    if (memory == nullptr) { std::abort(); }
    return memory;
}

void give_back(void* memory) {
    if (memory != nullptr) { --blocks; }
    std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_end(bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_end(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }

namespace {

using tilewise::axis;
using tilewise::status;
using tilewise::status_code;

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t queries = 5;
constexpr std::int64_t keys = 150;
constexpr std::int64_t dim = 16;

std::vector<float> numbers(std::int64_t count, std::uint32_t state) {
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& number : made) {
        state = state * 1664525U + 1013904223U;
        number = static_cast<float>(state >> 8U) / 8388608.0F - 1.0F;
    }
    return made;
}

/// The tensors of all calls here, and the bits that each must write.
struct problem {
    std::vector<float> q_data = numbers(heads * queries * dim, 1);
    std::vector<float> k_data = numbers(kv_heads * keys * dim, 2);
    std::vector<float> v_data = numbers(kv_heads * keys * dim, 3);
    std::vector<float> out_data = std::vector<float>(q_data.size());
    std::vector<float> lse_data = std::vector<float>(static_cast<std::size_t>(heads * queries));
    std::vector<float> expected = out_data;
    tilewise::const_tensor q = tilewise::bhsd(q_data.data(), 1, heads, queries, dim);
    tilewise::const_tensor k = tilewise::bhsd(k_data.data(), 1, kv_heads, keys, dim);
    tilewise::const_tensor v = tilewise::bhsd(v_data.data(), 1, kv_heads, keys, dim);
    tilewise::tensor out = tilewise::bhsd(out_data.data(), 1, heads, queries, dim);
    tilewise::tensor lse = tilewise::row_values(lse_data.data(), 1, heads, queries);
    tilewise::options how{.threads = 1};

    [[nodiscard]] bool has_expected_bits() const {
        return std::memcmp(out_data.data(), expected.data(), expected.size() * sizeof(float)) == 0;
    }
    [[nodiscard]] bool is_untouched() const {
        return std::all_of(out_data.begin(), out_data.end(), [](float number) { return number == 0.0F; });
    }
    void clear() {
        for (float& number : out_data) { number = 0.0F; }
    }
};

/// Fails each allocation of a call in turn: it says so, keeps no memory, and has written nothing.
template <class Call>
void fail_each_allocation(const char* name, problem& p, std::int64_t least, const Call& call) {
    std::int64_t failed = 0;
    for (std::int64_t number = 0;; ++number) {
        p.clear();
        const std::int64_t before = blocks;
        successes_left = number;
        may_not_fail = true;
        const status result = call();
        may_not_fail = false;
        const bool has_failed = successes_left < 0;
        successes_left = all;
        check(blocks == before, name);
        if (!has_failed) {
            check(result.is_ok(), name);
            check(failed >= least, name);
            return;
        }
        ++failed;
        check(result.code == status_code::out_of_memory, name);
        check(std::strstr(result.message, "memory") != nullptr, name);
        check(p.is_untouched(), name);
    }
}

status stream_whole(const problem& p) {
    std::optional<tilewise::attention_stream> stream;
    status result =
        tilewise::attention_stream::try_make(p.q, {.kv_heads = kv_heads, .value_dim = dim}, p.how, stream);
    for (const std::int64_t first : {0, 40, 140}) {
        const std::int64_t count = first == 0 ? 40 : first == 40 ? 100 : 10;
        if (!result.is_ok()) { return result; }
        result =
            stream->try_add(p.k.slice(axis::tokens, first, count), p.v.slice(axis::tokens, first, count));
    }
    return result.is_ok() ? stream->try_finish(p.out) : result;
}

status decode_from_cache(const problem& p) {
    std::optional<tilewise::kv_cache> cache;
    status result = tilewise::kv_cache::try_make(
        {.kv_heads = kv_heads, .head_dim = dim, .value_dim = dim, .page_tokens = 32, .pages = 5}, cache);
    if (!result.is_ok()) { return result; }
    int sequence = -1;
    result = cache->try_add(sequence);
    if (result.is_ok()) { result = cache->try_append(sequence, p.k, p.v); }
    return result.is_ok() ? cache->try_attention({&sequence, 1}, p.q, p.out, p.how) : result;
}

/// The status of a call of the C API.
status c_status(tilewise_status code) {
    return {static_cast<status_code>(code), code == TILEWISE_OK ? "" : tilewise_last_error()};
}

/// The arguments of all calls here, for C.
struct c_arguments {
    tilewise_tensor q;
    tilewise_tensor k;
    tilewise_tensor v;
    tilewise_tensor out;
    tilewise_options how{};

    explicit c_arguments(const problem& p)
        : q(tilewise_bhsd(p.q_data.data(), TILEWISE_F32, 1, heads, queries, dim)),
          k(tilewise_bhsd(p.k_data.data(), TILEWISE_F32, 1, kv_heads, keys, dim)),
          v(tilewise_bhsd(p.v_data.data(), TILEWISE_F32, 1, kv_heads, keys, dim)),
          out(tilewise_bhsd(p.out_data.data(), TILEWISE_F32, 1, heads, queries, dim)) {
        how.size = sizeof how;
        how.threads = 1;
    }
};

status use_c(const problem& p) {
    const c_arguments c(p);
    tilewise_kv_cache_options holds{};
    holds.size = sizeof holds;
    holds.kv_heads = kv_heads;
    holds.head_dim = holds.value_dim = dim;
    holds.pages = 2;
    tilewise_kv_cache* cache = nullptr;
    int32_t sequence = -1;
    status result = c_status(tilewise_kv_cache_create(&holds, &cache));
    if (result.is_ok()) { result = c_status(tilewise_kv_cache_add(cache, &sequence)); }
    if (result.is_ok()) { result = c_status(tilewise_kv_cache_append(cache, sequence, &c.k, &c.v)); }
    if (result.is_ok()) {
        result = c_status(tilewise_kv_cache_attention(cache, &sequence, 1, &c.q, &c.out, &c.how));
    }
    tilewise_kv_cache_destroy(cache);
    return result;
}

status stream_in_c(const problem& p) {
    const c_arguments c(p);
    tilewise_stream_sizes sizes{};
    sizes.size = sizeof sizes;
    sizes.kv_heads = kv_heads;
    sizes.value_dim = dim;
    tilewise_attention_stream* stream = nullptr;
    status result = c_status(tilewise_stream_create(&c.q, &sizes, &c.how, &stream));
    if (result.is_ok()) { result = c_status(tilewise_stream_add(stream, &c.k, &c.v)); }
    if (result.is_ok()) { result = c_status(tilewise_stream_finish(stream, &c.out, nullptr, nullptr)); }
    tilewise_stream_destroy(stream);
    return result;
}

status operator_of_onnx(const problem& p) {
    using tilewise::onnx::data_type;
    static constexpr std::array<std::int64_t, 4> few = {1, heads, queries, dim};
    static constexpr std::array<std::int64_t, 4> past = {1, kv_heads, keys - 10, dim};
    static constexpr std::array<std::int64_t, 4> added = {1, kv_heads, 10, dim};
    static constexpr std::array<std::int64_t, 4> strides = {kv_heads * keys * dim, keys * dim, dim, 1};
    const auto part = [&](const std::vector<float>& from, std::int64_t first, const auto& shape) {
        return tilewise::onnx::const_array{from.data() + first * dim, data_type::float32, shape, strides};
    };
    return tilewise::onnx::try_attention({.q = {p.q_data.data(), data_type::float32, few},
                                          .k = part(p.k_data, keys - 10, added),
                                          .v = part(p.v_data, keys - 10, added),
                                          .past_key = part(p.k_data, 0, past),
                                          .past_value = part(p.v_data, 0, past)},
                                         {}, {.y = {p.out.data, data_type::float32, few}}, {.threads = 1});
}

void run_out_of_memory(problem& p) {
    const auto same_bits = [&](const char* name) { check(p.has_expected_bits(), name); };
    fail_each_allocation("attention", p, 1, [&] { return try_attention(p.q, p.k, p.v, p.out, p.how); });
    same_bits("bits of attention");
    fail_each_allocation("reference", p, 5,
                         [&] { return tilewise::reference::try_attention(p.q, p.k, p.v, p.out, p.how); });
    same_bits("bits of the reference");
    fail_each_allocation("stream", p, 5, [&] { return stream_whole(p); });
    same_bits("bits of a stream");
    fail_each_allocation("cache", p, 10, [&] { return decode_from_cache(p); });
    same_bits("bits of a cache");
    fail_each_allocation("cache in C", p, 11, [&] { return use_c(p); });
    same_bits("bits of a cache in C");
    fail_each_allocation("stream in C", p, 5, [&] { return stream_in_c(p); });
    same_bits("bits of a stream in C");
    fail_each_allocation("ONNX", p, 3, [&] { return operator_of_onnx(p); });
    same_bits("bits of the operator");
    const std::array<tilewise::partial_result, 1> parts = {
        tilewise::partial_result{tilewise::bhsd(p.expected.data(), 1, heads, queries, dim), p.lse}};
    fail_each_allocation("merge", p, 1, [&] { return tilewise::try_merge(parts, p.out); });
    same_bits("bits of one part");
    constexpr std::int64_t long_row = 1024;
    std::vector<float> row = numbers(long_row, 4);
    const std::vector<float> before = row;
    fail_each_allocation("rotary embedding", p, 3, [&] {
        check(row == before, "rows are not turned without memory");
        return tilewise::try_rotary_embedding(tilewise::bhsd(row.data(), 1, 1, 1, long_row),
                                              {.first_position = 3});
    });
    check(row != before, "rows are turned");
}

void get_errors(problem& p) {
    tilewise::plan plan;
    check(try_plan_attention(p.q, p.k, p.v, p.out, p.how, plan).is_ok(), "plan");
    p.how.threads = -1;
    const status refused = try_attention(p.q, p.k, p.v, p.out, p.how);
    check(refused.code == status_code::invalid_argument, "code of a wrong argument");
    check(std::strcmp(refused.message,
                      "tilewise: threads: -1 given, it must be at least 0 (0 means as many as OpenMP would "
                      "use)") == 0,
          "message");
    check(!try_plan_attention(p.q, p.k, p.v, p.out, p.how, plan).is_ok(), "wrong plan");
    check(plan.threads == 1, "the plan stays as it was");
    p.how.threads = 1;

    std::optional<tilewise::kv_cache> cache;
    check(tilewise::kv_cache::try_make({}, cache).code == status_code::invalid_argument, "empty cache");
    check(!cache.has_value(), "no cache");
    int number = 77;
    check(tilewise::kv_cache::try_make({.kv_heads = 1, .head_dim = 1, .value_dim = 1, .pages = 1}, cache)
              .is_ok(),
          "cache");
    check(cache->try_add(number).is_ok() && number == 0, "sequence");
    check(cache->try_add(number).code == status_code::cache_full && number == 0, "full cache");
    check(cache->try_remove(5).code == status_code::invalid_argument, "no such sequence");

    std::optional<tilewise::attention_stream> stream;
    check(tilewise::attention_stream::try_make(p.q, {.kv_heads = 3}, p.how, stream).code ==
              status_code::invalid_argument,
          "wrong heads");
    check(tilewise::attention_stream::try_make(p.q, {.value_dim = dim}, p.how, stream).is_ok(), "stream");
    check(stream->try_finish(p.out).is_ok(), "no keys");
    check(stream->try_finish(p.out).code == status_code::stream_finished, "finished twice");
}

}  // namespace

int main() {
    problem p;
    tilewise::options how{.lse = p.lse, .threads = 1};
    check(tilewise::reference::try_attention(p.q, p.k, p.v, p.out, how).is_ok(), "reference");
    p.expected = p.out_data;
    run_out_of_memory(p);
    get_errors(p);
    return failures == 0 ? 0 : 1;
}

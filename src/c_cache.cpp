// The cache of tilewise.h.

#include <new>
#include <optional>
#include <tilewise/kv_cache.hpp>
#include <utility>

#include "c_values.hpp"
#include "tilewise.h"

struct tilewise_kv_cache {
    tilewise::kv_cache cache;
};

namespace tilewise {

namespace {

static_assert(sizeof(int) == sizeof(std::int32_t), "sequences are numbered alike in both interfaces");

bool read_cache_options(const tilewise_kv_cache_options* how, kv_cache_options& to) {
    constexpr std::size_t least_size = offsetof(tilewise_kv_cache_options, reserved) + sizeof(std::int32_t);
    tilewise_kv_cache_options from;
    if (!require_pointer("kv_cache_options", how) ||
        !read_structure("kv_cache_options", how, least_size, from)) {
        return false;
    }
    if (from.reserved != 0) {
        return refuse("kv_cache_options: reserved is ", from.reserved, ", it must be 0");
    }
    to.kv_heads = from.kv_heads;
    to.head_dim = from.head_dim;
    to.value_dim = from.value_dim;
    if (from.page_tokens != 0) { to.page_tokens = from.page_tokens; }
    to.pages = from.pages;
    if (from.max_sequences != 0) { to.max_sequences = from.max_sequences; }
    to.max_tokens = from.max_tokens;
    if (from.has_window != 0) { to.window = from.window; }
    return read_enumerator("k_type", from.k_type, TILEWISE_BIT + 1, to.k_type) &&
           read_enumerator("v_type", from.v_type, TILEWISE_BIT + 1, to.v_type);
}

/// What attention over a cache is given.
struct cache_call {
    std::span<const int> sequences;
    const_tensor q;
    tensor out;
    c_options how;

    [[nodiscard]] bool read(const tilewise_kv_cache* cache, const std::int32_t* from_sequences,
                            std::int64_t count, const tilewise_tensor* from_q, const tilewise_tensor* to_out,
                            const tilewise_options* from_how) {
        return require_pointer("cache", cache) && read_span("sequences", from_sequences, count, sequences) &&
               read_tensor("q", from_q, q) && read_tensor("out", to_out, out) && how.read(from_how);
    }
};

}  // namespace

}  // namespace tilewise

using namespace tilewise;

tilewise_status tilewise_kv_cache_create(const tilewise_kv_cache_options* how, tilewise_kv_cache** cache) {
    kv_cache_options read;
    if (!require_pointer("cache", cache) || !read_cache_options(how, read)) { return c_status(false); }
    std::optional<kv_cache> made;
    if (const status result = kv_cache::try_make(read, made); !result.is_ok()) { return c_status(result); }
    auto* const owned = new (std::nothrow) tilewise_kv_cache{std::move(*made)};
    if (owned == nullptr) { return c_status(lack_memory()); }
    *cache = owned;
    return TILEWISE_OK;
}

void tilewise_kv_cache_destroy(tilewise_kv_cache* cache) { delete cache; }

tilewise_status tilewise_kv_cache_add(tilewise_kv_cache* cache, int32_t* sequence) {
    if (!require_pointer("cache", cache) || !require_pointer("sequence", sequence)) {
        return c_status(false);
    }
    return c_status(cache->cache.try_add(*sequence));
}

tilewise_status tilewise_kv_cache_fork(tilewise_kv_cache* cache, int32_t sequence, int64_t tokens,
                                       int32_t* forked) {
    if (!require_pointer("cache", cache) || !require_pointer("forked", forked)) { return c_status(false); }
    return c_status(cache->cache.try_fork(sequence, tokens, *forked));
}

tilewise_status tilewise_kv_cache_remove(tilewise_kv_cache* cache, int32_t sequence) {
    if (!require_pointer("cache", cache)) { return c_status(false); }
    return c_status(cache->cache.try_remove(sequence));
}

tilewise_status tilewise_kv_cache_truncate(tilewise_kv_cache* cache, int32_t sequence, int64_t tokens) {
    if (!require_pointer("cache", cache)) { return c_status(false); }
    return c_status(cache->cache.try_truncate(sequence, tokens));
}

tilewise_status tilewise_kv_cache_append(tilewise_kv_cache* cache, int32_t sequence, const tilewise_tensor* k,
                                         const tilewise_tensor* v) {
    const_tensor keys;
    const_tensor values;
    if (!require_pointer("cache", cache) || !read_tensor("k", k, keys) || !read_tensor("v", v, values)) {
        return c_status(false);
    }
    return c_status(cache->cache.try_append(sequence, keys, values));
}

tilewise_status tilewise_kv_cache_length(const tilewise_kv_cache* cache, int32_t sequence, int64_t* tokens) {
    if (!require_pointer("cache", cache) || !require_pointer("tokens", tokens)) { return c_status(false); }
    return c_status(cache->cache.try_length(sequence, *tokens));
}

tilewise_status tilewise_kv_cache_first_position(const tilewise_kv_cache* cache, int32_t sequence,
                                                 int64_t* position) {
    if (!require_pointer("cache", cache) || !require_pointer("position", position)) {
        return c_status(false);
    }
    return c_status(cache->cache.try_first_position(sequence, *position));
}

int64_t tilewise_kv_cache_free_pages(const tilewise_kv_cache* cache) {
    return cache == nullptr ? 0 : cache->cache.free_pages();
}

size_t tilewise_kv_cache_memory_bytes(const tilewise_kv_cache* cache) {
    return cache == nullptr ? 0 : sizeof *cache + cache->cache.memory_bytes();
}

tilewise_status tilewise_kv_cache_attention(tilewise_kv_cache* cache, const int32_t* sequences,
                                            int64_t sequence_count, const tilewise_tensor* q,
                                            const tilewise_tensor* out, const tilewise_options* how) {
    cache_call given;
    if (!given.read(cache, sequences, sequence_count, q, out, how)) { return c_status(false); }
    return c_status(cache->cache.try_attention(given.sequences, given.q, given.out, given.how.get()));
}

tilewise_status tilewise_kv_cache_plan_attention(tilewise_kv_cache* cache, const int32_t* sequences,
                                                 int64_t sequence_count, const tilewise_tensor* q,
                                                 const tilewise_tensor* out, const tilewise_options* how,
                                                 tilewise_plan* result) {
    cache_call given;
    if (!check_plan(result) || !given.read(cache, sequences, sequence_count, q, out, how)) {
        return c_status(false);
    }
    plan planned;
    const status done =
        cache->cache.try_plan_attention(given.sequences, given.q, given.out, given.how.get(), planned);
    if (done.is_ok()) { write_plan(planned, result); }
    return c_status(done);
}

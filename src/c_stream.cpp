// The stream of tilewise.h.

#include <memory>
#include <new>
#include <optional>
#include <tilewise/stream.hpp>

#include "c_values.hpp"
#include "tilewise.h"

/// The stream's options point into `how`, so that a stream stays where it was made.
struct tilewise_attention_stream {
    tilewise::c_options how;
    std::optional<tilewise::attention_stream> stream;
};

namespace tilewise {

namespace {

bool read_stream_sizes(const tilewise_stream_sizes* sizes, stream_sizes& to) {
    constexpr std::size_t least_size = offsetof(tilewise_stream_sizes, total_keys) + sizeof(std::int64_t);
    tilewise_stream_sizes from;
    if (!require_pointer("stream_sizes", sizes) || !read_structure("stream_sizes", sizes, least_size, from)) {
        return false;
    }
    if (from.reserved != 0) { return refuse("stream_sizes: reserved is ", from.reserved, ", it must be 0"); }
    if (from.kv_heads != 0) { to.kv_heads = from.kv_heads; }
    to.value_dim = from.value_dim;
    if (from.has_total_keys != 0) { to.total_keys = from.total_keys; }
    return true;
}

}  // namespace

}  // namespace tilewise

using namespace tilewise;

tilewise_status tilewise_stream_create(const tilewise_tensor* q, const tilewise_stream_sizes* sizes,
                                       const tilewise_options* how, tilewise_attention_stream** stream) {
    const_tensor queries;
    stream_sizes read;
    if (!require_pointer("stream", stream) || !read_tensor("q", q, queries) ||
        !read_stream_sizes(sizes, read)) {
        return c_status(false);
    }
    std::unique_ptr<tilewise_attention_stream> made(new (std::nothrow) tilewise_attention_stream);
    if (made == nullptr) { return c_status(lack_memory()); }
    if (!made->how.read(how)) { return c_status(false); }
    const status result = attention_stream::try_make(queries, read, made->how.get(), made->stream);
    if (result.is_ok()) { *stream = made.release(); }
    return c_status(result);
}

void tilewise_stream_destroy(tilewise_attention_stream* stream) { delete stream; }

tilewise_status tilewise_stream_add(tilewise_attention_stream* stream, const tilewise_tensor* k,
                                    const tilewise_tensor* v) {
    const_tensor keys;
    const_tensor values;
    if (!require_pointer("stream", stream) || !read_tensor("k", k, keys) || !read_tensor("v", v, values)) {
        return c_status(false);
    }
    return c_status(stream->stream->try_add(keys, values));
}

tilewise_status tilewise_stream_keys_added(const tilewise_attention_stream* stream, int64_t* keys) {
    if (!require_pointer("stream", stream) || !require_pointer("keys", keys)) { return c_status(false); }
    return c_status(stream->stream->try_keys_added(*keys));
}

tilewise_status tilewise_stream_finish(tilewise_attention_stream* stream, const tilewise_tensor* out,
                                       const tilewise_tensor* lse, const tilewise_tensor* row_maximum) {
    tensor to_out;
    tensor to_lse;
    tensor to_maximum;
    if (!require_pointer("stream", stream) || !read_tensor("out", out, to_out) ||
        !read_optional_tensor("lse", lse, to_lse) ||
        !read_optional_tensor("row_maximum", row_maximum, to_maximum)) {
        return c_status(false);
    }
    return c_status(stream->stream->try_finish(to_out, to_lse, to_maximum));
}

tilewise_status tilewise_stream_saved_bytes(const tilewise_attention_stream* stream, size_t* bytes) {
    if (!require_pointer("stream", stream) || !require_pointer("bytes", bytes)) { return c_status(false); }
    return c_status(stream->stream->try_saved_bytes(*bytes));
}

tilewise_status tilewise_stream_save(const tilewise_attention_stream* stream, void* to, size_t bytes) {
    if (!require_pointer("stream", stream) || !require_pointer("to", to)) { return c_status(false); }
    return c_status(stream->stream->try_save({static_cast<std::byte*>(to), bytes}));
}

tilewise_status tilewise_stream_restore(tilewise_attention_stream* stream, const void* from, size_t bytes) {
    if (!require_pointer("stream", stream) || !require_pointer("from", from)) { return c_status(false); }
    return c_status(stream->stream->try_restore({static_cast<const std::byte*>(from), bytes}));
}

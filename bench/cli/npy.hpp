// NumPy's .npy files, read strictly and written whole.
//
// Of our own, because the readers that systems package (xtensor's, cnpy) have no f16, allocate what an
// unchecked header asks for, and take a file that ends early for a whole one.

#ifndef TILEWISE_CLI_NPY_HPP
#define TILEWISE_CLI_NPY_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <tilewise/tensor.hpp>

#include "output_file.hpp"

namespace tilewise::cli {

/// An array as its file has it.
struct array {
    std::vector<std::int64_t> shape;
    bool fortran_order = false;   ///< the first index varies fastest
    std::vector<float> floats;    ///< the elements, if they are f32
    std::vector<float16> halves;  ///< the elements, if they are f16
    element_type type = element_type::f32;

    /// The array as [batch, heads, tokens, head_dim]; three dimensions are a batch of one.
    [[nodiscard]] const_tensor view() const;

    /// The elements in f32, in the file's order.
    [[nodiscard]] std::vector<float> to_f32() const;
};

/// Reads little-endian f32 or f16 with 3 or 4 dimensions. Never uses more memory than a
/// few times the file's size. Throws run_error naming `option` and the file for anything else.
[[nodiscard]] array read_npy(const std::string& option, const std::filesystem::path& path);

/// An array as its file has it, unconverted.
struct raw_array {
    std::string type;  ///< NumPy's name for it: "<f4"
    std::vector<std::int64_t> shape;
    bool fortran_order = false;
    std::vector<std::byte> bytes;

    /// The elements as those of type Element, which must have their size.
    template <class Element>
    [[nodiscard]] std::vector<Element> elements() const {
        std::vector<Element> result(bytes.size() / sizeof(Element));
        if (!result.empty()) { std::memcpy(result.data(), bytes.data(), bytes.size()); }
        return result;
    }
};

/// Reads numbers of any size and boolean values, little-endian, with any number of dimensions; otherwise
/// like read_npy.
[[nodiscard]] raw_array read_raw_npy(const std::string& option, const std::filesystem::path& path);

/// Writes a contiguous f32 array.
void write_npy(output_file& file, const std::vector<std::int64_t>& shape, const std::vector<float>& values);

}  // namespace tilewise::cli

#endif

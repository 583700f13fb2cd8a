// A test vector of the ONNX Attention operator, as a folder with case.json and .npy files has it.

#ifndef TILEWISE_TESTS_CONFORMANCE_CASE_HPP
#define TILEWISE_TESTS_CONFORMANCE_CASE_HPP

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <tilewise/onnx.hpp>

namespace tilewise_tests {

/// A tensor of a case. Floating-point types were converted to float32: f16 and bf16 exactly.
struct case_tensor {
    std::vector<std::int64_t> shape;
    tilewise::onnx::data_type type = tilewise::onnx::data_type::float32;
    std::vector<float> floats;           ///< of a float32 one
    std::vector<std::int64_t> integers;  ///< of an int64 one
    std::vector<std::uint8_t> booleans;  ///< of a boolean one

    [[nodiscard]] tilewise::onnx::const_array view() const;
};

struct case_output {
    case_tensor want;
    double relative_tolerance = 0;
    double absolute_tolerance = 0;
};

struct conformance_case {
    std::string name;
    tilewise::onnx::attributes attributes;
    std::map<std::string, case_tensor> inputs;
    std::map<std::string, case_output> outputs;
};

/// Throws std::runtime_error for anything that it does not understand, so that nothing is left out.
conformance_case read_case(const std::filesystem::path& folder);

/// The names of the folder's cases, as its index.json has them.
std::vector<std::string> case_names(const std::filesystem::path& folder);

/// Computes the case's outputs. Returns what is wrong with them, in words, or nothing.
std::string run_case(const conformance_case& which);

}  // namespace tilewise_tests

#endif

// What the ONNX operator should give: elements are gathered one by one, masks are expanded to all of their
// extents, and each batch entry goes through the reference alone.

#ifndef TILEWISE_TESTS_FUZZ_ONNX_ORACLE_HPP
#define TILEWISE_TESTS_FUZZ_ONNX_ORACLE_HPP

#include <array>
#include <cstdint>
#include <string>
#include <tilewise/onnx.hpp>
#include <vector>

namespace tilewise_tests {

struct onnx_results {
    std::array<std::int64_t, 4> extents;  ///< of y
    std::vector<float> y;                 ///< [B, Hq, Sq, value_dim]
    std::vector<float> qk;  ///< [B, Hq, Sq, T]; empty where it is not computed here (after a soft cap)
};

/// Of a call that the operator accepts.
onnx_results expect_onnx(const tilewise::onnx::inputs& given, const tilewise::onnx::attributes& set);

/// Empty if the outputs are as expected; else what differs.
std::string difference_from(const onnx_results& want, const tilewise::onnx::outputs& got);

}  // namespace tilewise_tests

#endif

#include "conformance_case.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "npy.hpp"

namespace tilewise_tests {

namespace {

namespace onnx = tilewise::onnx;
using nlohmann::json;

json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    if (!file) { throw std::runtime_error(path.string() + " cannot be read"); }
    return json::parse(file);
}

template <class Stored>
std::vector<float> to_floats(const tilewise::cli::raw_array& from,
                             const std::function<float(Stored)>& convert) {
    const std::vector<Stored> stored = from.elements<Stored>();
    std::vector<float> floats(stored.size());
    std::transform(stored.begin(), stored.end(), floats.begin(), convert);
    return floats;
}

template <class Half>
float float_of(std::uint16_t bits) {
    return static_cast<float>(std::bit_cast<Half>(bits));
}

case_tensor read_tensor(const std::filesystem::path& folder, const json& described) {
    const std::string type = described.at("dtype");
    const tilewise::cli::raw_array raw =
        tilewise::cli::read_raw_npy("case", folder / described.at("file").get<std::string>());
    case_tensor result{raw.shape, onnx::data_type::float32, {}, {}, {}};
    if (raw.fortran_order || raw.shape != described.at("shape").get<std::vector<std::int64_t>>()) {
        throw std::runtime_error("the shape or order of a file is not that of case.json");
    }
    if (type == "float32" && raw.type == "<f4") {
        result.floats = raw.elements<float>();
    } else if (type == "float64" && raw.type == "<f8") {
        result.floats = to_floats<double>(raw, [](double value) { return static_cast<float>(value); });
    } else if (type == "float16" && raw.type == "<f2") {
        result.floats = to_floats<std::uint16_t>(raw, float_of<tilewise::float16>);
    } else if (type == "bfloat16" && raw.type == "<u2") {
        result.floats = to_floats<std::uint16_t>(raw, float_of<tilewise::bfloat16>);
    } else if (type == "int64" && raw.type == "<i8") {
        result.type = onnx::data_type::int64;
        result.integers = raw.elements<std::int64_t>();
    } else if (type == "bool" && raw.type == "|b1") {
        result.type = onnx::data_type::boolean;
        result.booleans = raw.elements<std::uint8_t>();
    } else {
        throw std::runtime_error("element type " + type + " stored as " + raw.type + " is not known");
    }
    return result;
}

onnx::attributes read_attributes(const json& described) {
    onnx::attributes set;
    for (const auto& [name, value] : described.items()) {
        if (value.is_null()) { continue; }
        if (name == "is_causal") {
            set.is_causal = value;
        } else if (name == "scale") {
            set.scale = value.get<float>();
        } else if (name == "softcap") {
            set.softcap = value;
        } else if (name == "q_num_heads") {
            set.q_num_heads = value.get<std::int64_t>();
        } else if (name == "kv_num_heads") {
            set.kv_num_heads = value.get<std::int64_t>();
        } else if (name == "qk_matmul_output_mode") {
            set.qk_matmul_output_mode = value;
        } else if (name == "softmax_precision") {
            set.softmax_precision = value.get<std::int64_t>();
        } else if (name == "left_window_size") {
            set.left_window_size = value;
        } else if (name == "right_window_size") {
            set.right_window_size = value;
        } else {
            throw std::runtime_error("attribute " + name + " is not known");
        }
    }
    return set;
}

onnx::inputs inputs_of(const conformance_case& which) {
    onnx::inputs given;
    for (const auto& [name, tensor] : which.inputs) {
        if (name == "Q") {
            given.q = tensor.view();
        } else if (name == "K") {
            given.k = tensor.view();
        } else if (name == "V") {
            given.v = tensor.view();
        } else if (name == "attn_mask") {
            given.attn_mask = tensor.view();
        } else if (name == "past_key") {
            given.past_key = tensor.view();
        } else if (name == "past_value") {
            given.past_value = tensor.view();
        } else if (name == "nonpad_kv_seqlen") {
            given.nonpad_kv_seqlen = tensor.view();
        } else if (name == "head_sink") {
            given.head_sink = tensor.view();
        } else {
            throw std::runtime_error("input " + name + " is not known");
        }
    }
    return given;
}

/// The outputs that the case has, in memory of their own.
onnx::outputs outputs_of(const conformance_case& which, std::map<std::string, std::vector<float>>& memory) {
    onnx::outputs wanted;
    for (const auto& [name, output] : which.outputs) {
        std::vector<float>& values = memory[name];
        values.assign(output.want.floats.size(), -12345.0F);
        const onnx::array to{values.data(), onnx::data_type::float32, output.want.shape, {}};
        if (name == "Y") {
            wanted.y = to;
        } else if (name == "present_key") {
            wanted.present_key = to;
        } else if (name == "present_value") {
            wanted.present_value = to;
        } else if (name == "qk_matmul_output") {
            wanted.qk_matmul_output = to;
        } else {
            throw std::runtime_error("output " + name + " is not known");
        }
    }
    return wanted;
}

bool is_close(float got, float want, const case_output& how) {
    if (std::isnan(want)) { return std::isnan(got); }
    if (std::isinf(want)) { return got == want; }
    const double allowed =
        how.absolute_tolerance + how.relative_tolerance * std::abs(static_cast<double>(want));
    return std::abs(static_cast<double>(got) - static_cast<double>(want)) <= allowed;
}

}  // namespace

onnx::const_array case_tensor::view() const {
    const void* data = floats.data();
    if (type == onnx::data_type::int64) { data = integers.data(); }
    if (type == onnx::data_type::boolean) { data = booleans.data(); }
    return {data, type, shape, {}};
}

conformance_case read_case(const std::filesystem::path& folder) {
    const json described = read_json(folder / "case.json");
    conformance_case result;
    result.name = described.at("name");
    result.attributes = read_attributes(described.at("attributes"));
    for (const auto& [name, tensor] : described.at("inputs").items()) {
        result.inputs[name] = read_tensor(folder, tensor);
    }
    for (const auto& [name, tensor] : described.at("outputs").items()) {
        const json& tolerance = tensor.contains("tolerance") ? tensor : described;
        result.outputs[name] = {read_tensor(folder, tensor), tolerance.at("tolerance").at("rtol"),
                                tolerance.at("tolerance").at("atol")};
    }
    return result;
}

std::vector<std::string> case_names(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const json& entry : read_json(folder / "index.json")) { names.push_back(entry.at("name")); }
    return names;
}

std::string run_case(const conformance_case& which) {
    std::map<std::string, std::vector<float>> got;
    const onnx::outputs wanted = outputs_of(which, got);
    onnx::attention(inputs_of(which), which.attributes, wanted);
    std::string wrong;
    for (const auto& [name, output] : which.outputs) {
        const std::vector<float>& want = output.want.floats;
        for (std::size_t i = 0; i < want.size(); ++i) {
            if (is_close(got[name][i], want[i], output)) { continue; }
            wrong += name + "[" + std::to_string(i) + "] is " + std::to_string(got[name][i]) + ", not " +
                     std::to_string(want[i]) + "; ";
            break;
        }
    }
    return wrong;
}

}  // namespace tilewise_tests

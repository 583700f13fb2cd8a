#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "program.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "child_process.hpp"

namespace tilewise_tests {

finished tilewise(const std::vector<std::string>& arguments) {
    const auto child = ::tilewise::measure::run_child(TILEWISE_PROGRAM, arguments, true);
    REQUIRE(child.started);
    return {child.exit_code, child.output};
}

temporary_directory::temporary_directory() {
    std::string name = (std::filesystem::temp_directory_path() / "tilewise-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
}

temporary_directory::~temporary_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> temporary_directory::files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

std::string npy_bytes(const std::string& dictionary, const std::string& data) {
    const std::size_t size = dictionary.size() + 1;
    return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 255) +
           static_cast<char>(size >> 8) + dictionary + "\n" + data;
}

std::string npy_bytes(const std::string& type, const std::vector<std::int64_t>& shape,
                      const std::string& data) {
    std::string extents;
    for (const std::int64_t extent : shape) { extents += std::to_string(extent) + ","; }
    return npy_bytes("{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + extents + "), }", data);
}

std::vector<float> read_f32(const std::string& path, const std::vector<std::int64_t>& shape) {
    const std::string bytes = read_file(path);
    REQUIRE(bytes.size() >= 10);
    const std::size_t header =
        10U + static_cast<unsigned char>(bytes[8]) + 256U * static_cast<unsigned char>(bytes[9]);
    REQUIRE(bytes.size() >= header);
    CHECK(header % 64 == 0);
    std::string expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    for (const std::int64_t extent : shape) { expected += std::to_string(extent) + ", "; }
    CHECK(bytes.substr(10, header - 10).rfind(expected + "), }", 0) == 0);
    CHECK(bytes[header - 1] == '\n');
    std::vector<float> values((bytes.size() - header) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + header, values.size() * sizeof(float));
    return values;
}

}  // namespace tilewise_tests

// Helpers of the tests that run the tilewise program: running it, and files for it.

#ifndef TILEWISE_TESTS_CLI_PROGRAM_HPP
#define TILEWISE_TESTS_CLI_PROGRAM_HPP

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tilewise_tests {

struct finished {
    int exit_code = -1;
    std::string text;  ///< standard output and standard error
};

/// Runs the program with these arguments.
finished tilewise(const std::vector<std::string>& arguments);

/// A directory of its own, removed at the end.
class temporary_directory {
public:
    temporary_directory();
    ~temporary_directory();
    temporary_directory(const temporary_directory&) = delete;
    temporary_directory& operator=(const temporary_directory&) = delete;

    [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }
    /// Names of the files in it, sorted.
    [[nodiscard]] std::vector<std::string> files() const;

private:
    std::filesystem::path path_;
};

void write_file(const std::string& path, const std::string& bytes);
std::string read_file(const std::string& path);

/// The bytes of a .npy file: version 1.0, this header dictionary, this data.
std::string npy_bytes(const std::string& dictionary, const std::string& data);
std::string npy_bytes(const std::string& type, const std::vector<std::int64_t>& shape,
                      const std::string& data);

template <class Value>
std::string bytes_of(const std::vector<Value>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

/// The values of an f32 .npy file that the program wrote; fails the test if its header is not as expected.
std::vector<float> read_f32(const std::string& path, const std::vector<std::int64_t>& shape);

}  // namespace tilewise_tests

#endif

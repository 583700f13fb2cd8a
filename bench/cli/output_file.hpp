// A file that appears under its name only when it is complete: a full disk or an interruption leaves no
// half-written result.

#ifndef TILEWISE_CLI_OUTPUT_FILE_HPP
#define TILEWISE_CLI_OUTPUT_FILE_HPP

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string_view>

namespace tilewise::cli {

class output_file {
public:
    /// Tries to make a temporary file beside `path`, so that a wrong path is noticed before any work is done,
    /// and removes it until it is needed. Throws run_error naming `option` if that fails.
    output_file(std::string_view option, std::filesystem::path path);
    ~output_file();
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;

    void write(const void* data, std::size_t bytes);
    void write(std::string_view text) { write(text.data(), text.size()); }

    /// Gives the file its name. Throws run_error if anything that was written did not get there.
    void commit();

    /// The file to be renamed, for other programs that write it.
    [[nodiscard]] const std::filesystem::path& temporary() const { return temporary_; }

private:
    [[noreturn]] void fail(int error) const;

    std::filesystem::path path_;
    std::filesystem::path temporary_;
    std::FILE* file_ = nullptr;
};

}  // namespace tilewise::cli

#endif

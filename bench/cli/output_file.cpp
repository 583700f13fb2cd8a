#include "output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "errors.hpp"

namespace tilewise::cli {
namespace {

/// "dir/a.partial-123.svg" for "dir/a.svg": the ending stays, as programs choose formats by it.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
    std::filesystem::path name = path.stem();
    name += ".partial-" + std::to_string(getpid());
    name += path.extension();
    return path.parent_path() / name;
}

}  // namespace

output_file::output_file(std::string_view option, std::filesystem::path path)
    : path_(std::move(path)), temporary_(temporary_beside(path_)) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path_, ignored);
    if (!path_.has_filename() || (exists(status) && !is_regular_file(status))) {
        throw run_error(std::string(option) + ": '" + path_.string() + "' is not the name of a regular file");
    }
    // A file that is protected against writing could still be replaced, which is not what its owner wants.
    const bool is_protected = exists(status) && faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) != 0;
    std::FILE* tried = is_protected ? nullptr : std::fopen(temporary_.c_str(), "wbx");
    if (tried == nullptr) {
        const std::string reason = std::strerror(errno);
        throw run_error(std::string(option) + ": '" + path_.string() + "' cannot be written: " + reason);
    }
    std::fclose(tried);
    std::filesystem::remove(temporary_, ignored);
}

output_file::~output_file() {
    if (file_ != nullptr) { std::fclose(file_); }
    std::error_code ignored;
    if (!temporary_.empty()) { std::filesystem::remove(temporary_, ignored); }
}

void output_file::fail(int error) const {
    throw run_error("'" + path_.string() + "' could not be written: " + std::strerror(error));
}

void output_file::write(const void* data, std::size_t bytes) {
    if (file_ == nullptr) { file_ = std::fopen(temporary_.c_str(), "wbx"); }
    if (file_ == nullptr) { fail(errno); }
    if (std::fwrite(data, 1, bytes, file_) != bytes) { fail(errno); }
}

void output_file::commit() {
    std::FILE* file = file_;
    file_ = nullptr;
    if (file != nullptr && std::fclose(file) != 0) { fail(errno); }
    std::error_code failed;
    std::filesystem::rename(temporary_, path_, failed);
    if (failed) { fail(failed.value()); }
    temporary_.clear();
}

}  // namespace tilewise::cli

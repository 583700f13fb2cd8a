#include "progress.hpp"

#include <unistd.h>

#include <cstdio>

namespace tilewise::cli {

progress_line::progress_line() : terminal_(isatty(STDERR_FILENO) != 0) {}

void progress_line::show(const std::string& text) {
    if (!terminal_) { return; }
    constexpr std::size_t width = 79;
    std::fprintf(stderr, "\r%-79s\r%s", "", text.substr(0, width).c_str());
    std::fflush(stderr);
    shown_ = true;
}

void progress_line::clear() {
    if (!shown_) { return; }
    std::fprintf(stderr, "\r%-79s\r", "");
    std::fflush(stderr);
    shown_ = false;
}

}  // namespace tilewise::cli

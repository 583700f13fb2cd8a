// One line on the terminal that says what a long run is doing, and vanishes with its end.

#ifndef TILEWISE_CLI_PROGRESS_HPP
#define TILEWISE_CLI_PROGRESS_HPP

#include <string>

namespace tilewise::cli {

class progress_line {
public:
    progress_line();
    ~progress_line() { clear(); }
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;

    /// Replaces the line, if standard error is a terminal; nothing otherwise.
    void show(const std::string& text);
    void clear();

private:
    bool terminal_;
    bool shown_ = false;
};

}  // namespace tilewise::cli

#endif

// How the program fails: a usage error (exit code 2) is a wrong command line; everything else (1) is a run
// that went wrong.

#ifndef TILEWISE_CLI_ERRORS_HPP
#define TILEWISE_CLI_ERRORS_HPP

#include <stdexcept>

namespace tilewise::cli {

struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct run_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace tilewise::cli

#endif

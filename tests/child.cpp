#include "child.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace tilewise_tests {

bool succeeds_in_child(const std::function<bool()>& work) {
    constexpr unsigned most_seconds = 120;
    const pid_t child = fork();
    if (child == 0) {
        alarm(most_seconds);  // ends the process
        bool done = false;
        try {
            done = work();
        } catch (...) { done = false; }
        _exit(done ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == EXIT_SUCCESS;
}

}  // namespace tilewise_tests

#include "child_process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

extern char** environ;

namespace tilewise::measure {
namespace {

/// Reads until the other end is closed.
std::string read_all(int descriptor) {
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
        const ssize_t size = read(descriptor, part.data(), part.size());
        if (size > 0) {
            text.append(part.data(), static_cast<std::size_t>(size));
        } else if (size == 0 || errno != EINTR) {
            return text;
        }
    }
}

int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) { return -1; }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

child_result run_child(const std::string& program, const std::vector<std::string>& arguments,
                       bool with_errors) {
    std::vector<char*> argv;
    argv.push_back(const_cast<char*>(program.c_str()));
    for (const std::string& argument : arguments) { argv.push_back(const_cast<char*>(argument.c_str())); }
    argv.push_back(nullptr);

    child_result result;
    int ends[2];
    if (pipe(ends) != 0) { return result; }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    if (with_errors) { posix_spawn_file_actions_adddup2(&actions, ends[1], 2); }
    if (ends[1] > 2) { posix_spawn_file_actions_addclose(&actions, ends[1]); }
    pid_t child = 0;
    result.started = posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (result.started) {
        result.output = read_all(ends[0]);
        result.exit_code = wait_for(child);
    }
    close(ends[0]);
    return result;
}

std::string own_path(const std::string& fallback) {
    std::error_code failed;
    const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", failed);
    return failed ? fallback : path.string();
}

}  // namespace tilewise::measure

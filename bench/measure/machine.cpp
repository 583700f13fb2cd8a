#include "machine.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <limits>
#include <sstream>

#if defined(_OPENMP)
#    include <omp.h>
#endif
#if defined(__APPLE__)
#    include <sys/sysctl.h>
#endif
#include <sys/resource.h>

namespace tilewise::measure {
namespace {

/// The value of a line "name : value" or "name  value"; empty if there is none.
std::string field_of(const char* path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, name.size(), name) != 0) { continue; }
        const std::size_t first = line.find_first_not_of(" \t:", name.size());
        if (first != std::string::npos) { return line.substr(first); }
    }
    return {};
}

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

/// "48K", "32768 kB" and "134217728" as bytes; `otherwise` if it does not start with a number.
std::size_t parse_bytes(const std::string& text, std::size_t otherwise) {
    std::istringstream in(text);
    std::size_t value = 0;
    if (!(in >> value)) { return otherwise; }
    char unit = 0;
    in >> unit;
    switch (std::toupper(static_cast<unsigned char>(unit))) {
        case 'K':
            return value << 10;
        case 'M':
            return value << 20;
        case 'G':
            return value << 30;
        default:
            return value;
    }
}

constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();

/// What the memory limit of this process's control group (version 2, then 1) leaves.
std::size_t control_group_memory() {
    struct files {
        const char* limit;
        const char* used;
    };
    constexpr files candidates[] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    for (const files& candidate : candidates) {
        const std::size_t limit = parse_bytes(first_line(candidate.limit), unknown);
        if (limit == unknown) { continue; }
        const std::size_t used = parse_bytes(first_line(candidate.used), 0);
        return limit > used ? limit - used : 0;
    }
    return unknown;
}

#if defined(__APPLE__)
std::string system_value(const char* name) {
    char text[256] = {};
    std::size_t size = sizeof text - 1;
    return sysctlbyname(name, text, &size, nullptr, 0) == 0 ? std::string(text) : std::string();
}

std::size_t system_number(const char* name) {
    std::size_t value = 0;
    std::size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}
#endif

}  // namespace

std::string cpu_name() {
#if defined(__APPLE__)
    std::string name = system_value("machdep.cpu.brand_string");
#else
    std::string name = field_of("/proc/cpuinfo", "model name");
    if (name.empty()) { name = first_line("/sys/firmware/devicetree/base/model"); }
#endif
    name.erase(std::find(name.begin(), name.end(), '\0'), name.end());
    return name.empty() ? "unknown" : name;
}

std::vector<cache> caches() {
    std::vector<cache> found;
#if defined(__APPLE__)
    for (const auto& [level, name] : {std::pair{1, "hw.l1dcachesize"}, std::pair{2, "hw.l2cachesize"}}) {
        if (const std::size_t bytes = system_number(name)) { found.push_back({level, "data", bytes}); }
    }
#else
    for (int index = 0;; ++index) {
        const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        std::string kind = first_line(folder + "type");
        if (kind.empty()) { break; }
        if (kind == "Instruction") { continue; }
        std::transform(kind.begin(), kind.end(), kind.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        const auto level = static_cast<int>(parse_bytes(first_line(folder + "level"), 0));
        found.push_back({level, kind, parse_bytes(first_line(folder + "size"), 0)});
    }
#endif
    return found;
}

int default_threads() {
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
}

std::size_t available_memory() {
#if defined(__APPLE__)
    const std::size_t available = system_number("hw.memsize");
    return available == 0 ? unknown : available;
#else
    return std::min(parse_bytes(field_of("/proc/meminfo", "MemAvailable"), unknown), control_group_memory());
#endif
}

std::size_t peak_resident_memory() {
    // Not ru_maxrss where /proc exists: Linux carries the parent's peak into it across exec.
    const std::size_t peak = parse_bytes(field_of("/proc/self/status", "VmHWM"), 0);
    if (peak > 0) { return peak; }
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) { return 0; }
    const auto reported = static_cast<std::size_t>(usage.ru_maxrss);
#if defined(__APPLE__)
    return reported;
#else
    return reported << 10;
#endif
}

}  // namespace tilewise::measure

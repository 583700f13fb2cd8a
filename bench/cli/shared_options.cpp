// What several subcommands share: options, and the wording of errors.

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include <tilewise/isa.hpp>

#include "commands.hpp"
#include "errors.hpp"

namespace tilewise::cli {

std::string without_prefix(const std::string& message) {
    constexpr std::string_view prefix = "tilewise: ";
    return message.rfind(prefix, 0) == 0 ? message.substr(prefix.size()) : message;
}

CLI::Option* add_threads_option(CLI::App& command, int& threads) {
    return command.add_option("--threads", threads, "Threads to use at most; 0 for all")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
}

CLI::Option* add_isa_option(CLI::App& command, std::string& name) {
    std::string known;
    for (const isa which : available_isas()) {
        known += (known.empty() ? "" : ", ") + std::string(isa_name(which));
    }
    return command.add_option("--isa", name, "Instruction set of the kernels; here: " + known);
}

CLI::Option* add_arithmetic_option(CLI::App& command, std::string& name) {
    return command
        .add_option(
            "--arithmetic", name,
            "exact: the same bits everywhere; fastest: bf16 products where q, k and v are bf16 and the "
            "processor has them")
        ->check(CLI::IsMember({"exact", "fastest"}))
        ->capture_default_str();
}

arithmetic arithmetic_named(const std::string& name) {
    return name == "fastest" ? arithmetic::fastest : arithmetic::exact;
}

std::string name_of(arithmetic which) { return which == arithmetic::fastest ? "fastest" : "exact"; }

isa choose_isa(const std::string& name) {
    try {
        if (!name.empty()) { force_isa(isa_from_name(name)); }
        return active_isa();
    } catch (const std::invalid_argument& error) {
        throw usage_error((name.empty() ? "TILEWISE_ISA: " : "--isa: ") + without_prefix(error.what()));
    }
}

}  // namespace tilewise::cli

// The program's subcommands. Each function declares one with its options; it runs when it was parsed.

#ifndef TILEWISE_CLI_COMMANDS_HPP
#define TILEWISE_CLI_COMMANDS_HPP

#include <string>

#include <tilewise/attention.hpp>
#include <tilewise/isa.hpp>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tilewise::cli {

void add_compare(CLI::App& app, const std::string& program);
void add_accuracy(CLI::App& app);
void add_run(CLI::App& app);
void add_time(CLI::App& app);
void add_info(CLI::App& app);
void add_explain(CLI::App& app);

/// Options that several subcommands have.
CLI::Option* add_threads_option(CLI::App& command, int& threads);
CLI::Option* add_isa_option(CLI::App& command, std::string& name);
CLI::Option* add_arithmetic_option(CLI::App& command, std::string& name);

/// A message of the library's without its name, which the program's own messages have.
std::string without_prefix(const std::string& message);

/// Makes the instruction set of that name run, if it is not empty. Throws usage_error if it cannot.
isa choose_isa(const std::string& name);

/// The names that the option has.
arithmetic arithmetic_named(const std::string& name);
std::string name_of(arithmetic which);

}  // namespace tilewise::cli

#endif

// tilewise: compares tiled with naive attention, runs attention on files, and explains it.
//
// Exit codes: 0 done, 1 a run went wrong, 2 the command line is wrong.

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include <tilewise/version.hpp>

#include "child_process.hpp"
#include "commands.hpp"
#include "errors.hpp"
#include "memory_probe.hpp"

namespace tilewise::cli {

namespace {

void parse_and_run(int argc, char** argv) {
    const std::string version = std::to_string(TILEWISE_VERSION_MAJOR) + "." +
                                std::to_string(TILEWISE_VERSION_MINOR) + "." +
                                std::to_string(TILEWISE_VERSION_PATCH);
    CLI::App app(
        "Exact tiled attention on CPUs: compare it with the naive formulation, run it, see how it works.",
        "tilewise");
    app.set_version_flag("--version", "tilewise " + version);
    app.require_subcommand(1);
    add_compare(app, measure::own_path(argv[0]));
    add_accuracy(app);
    add_run(app);
    add_time(app);
    add_info(app);
    add_explain(app);
    add_memory_probe(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) { throw usage_error(error.what()); }
        app.exit(error);  // help or version: prints it
    }
}

int main_with_errors(int argc, char** argv) {
    try {
        parse_and_run(argc, argv);
        if (!std::cout.flush()) { throw run_error("standard output could not be written"); }
        return 0;
    } catch (const usage_error& error) {
        std::cerr << "tilewise: " << error.what()
                  << "\nRun 'tilewise --help' or 'tilewise COMMAND --help'.\n";
        return 2;
    } catch (const std::bad_alloc&) {
        std::cerr << "tilewise: not enough memory\n";
    } catch (const std::exception& error) {
        std::cerr << "tilewise: " << without_prefix(error.what()) << '\n';
    }
    return 1;
}

}  // namespace

}  // namespace tilewise::cli

int main(int argc, char** argv) { return tilewise::cli::main_with_errors(argc, argv); }

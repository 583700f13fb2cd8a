#include "memory_probe.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include <tilewise/attention.hpp>

#include "child_process.hpp"
#include "comparison.hpp"
#include "machine.hpp"

namespace tilewise::cli {
namespace {

void carry_out(const memory_probe& probe) {
    const input from = make_input(probe.spec);
    std::vector<float> out(from.q.size());
    if (probe.naive) {
        measure::naive_attention naive(naive_shape_of(from.spec, probe.causal), *probe.naive, probe.isa,
                                       probe.threads);
        naive.run(from.q.data(), from.k.data(), from.v.data(), out.data());
    } else {
        force_isa(probe.isa);
        options how;
        how.causal = probe.causal ? causal::bottom_right : causal::none;
        how.threads = probe.threads;
        attention(from.q_view(), from.k_view(), from.v_view(), from.out_view(out.data()), how);
    }
    std::cout << measure::peak_resident_memory() << '\n';
}

}  // namespace

std::optional<std::size_t> run_memory_probe(const std::string& program, const memory_probe& probe) {
    const input_spec& s = probe.spec;
    std::vector<std::string> arguments = {
        std::string(memory_probe_command), "--isa",      std::string(isa_name(probe.isa)), "--threads",
        std::to_string(probe.threads),     "--tokens",   std::to_string(s.tokens),         "--heads",
        std::to_string(s.heads),           "--kv-heads", std::to_string(s.kv_heads),       "--head-dim",
        std::to_string(s.head_dim)};
    if (s.is_real()) { arguments.insert(arguments.end(), {"--layer", s.layer, "--data", s.data.string()}); }
    if (probe.causal) { arguments.emplace_back("--causal"); }
    if (probe.naive) {
        const bool openblas = *probe.naive == measure::naive_products::openblas;
        arguments.insert(arguments.end(), {"--naive", openblas ? "openblas" : "loops"});
    }
    const measure::child_result child = measure::run_child(program, arguments);
    std::size_t bytes = 0;
    const char* end = child.output.data() + child.output.size();
    const auto parsed = std::from_chars(child.output.data(), end, bytes);
    if (child.exit_code != 0 || parsed.ec != std::errc() || bytes == 0) { return std::nullopt; }
    return bytes;
}

void add_memory_probe(CLI::App& app) {
    struct arguments {
        memory_probe probe;
        std::string isa;
        std::string naive;
        std::string data;
    };
    const auto given = std::make_shared<arguments>();
    CLI::App* command = app.add_subcommand(std::string(memory_probe_command), "")->group("");
    command->add_option("--isa", given->isa)->required();
    command->add_option("--threads", given->probe.threads)->required();
    command->add_option("--tokens", given->probe.spec.tokens);
    command->add_option("--heads", given->probe.spec.heads);
    command->add_option("--kv-heads", given->probe.spec.kv_heads);
    command->add_option("--head-dim", given->probe.spec.head_dim);
    command->add_option("--layer", given->probe.spec.layer);
    command->add_option("--data", given->data);
    command->add_flag("--causal", given->probe.causal);
    command->add_option("--naive", given->naive)->check(CLI::IsMember({"openblas", "loops"}));
    command->callback([given] {
        memory_probe& probe = given->probe;
        probe.isa = isa_from_name(given->isa);
        probe.spec.data = given->data;
        if (given->naive == "openblas") { probe.naive = measure::naive_products::openblas; }
        if (given->naive == "loops") { probe.naive = measure::naive_products::loops; }
        carry_out(probe);
    });
}

}  // namespace tilewise::cli

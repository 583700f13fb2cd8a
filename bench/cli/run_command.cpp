// tilewise run: attention on a user's own .npy files.

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tilewise/attention.hpp>

#include "clock.hpp"
#include "commands.hpp"
#include "errors.hpp"
#include "machine.hpp"
#include "npy.hpp"
#include "output_file.hpp"
#include "text.hpp"

namespace tilewise::cli {
namespace {

struct run_options {
    std::string q, k, v, out, lse;
    std::optional<float> scale;
    std::string causal;
    int threads = 0;
    std::string isa;
};

/// The shape of an output: like q's, with another last extent, or without the last.
std::vector<std::int64_t> shape_like(const array& q, std::optional<std::int64_t> last) {
    std::vector<std::int64_t> shape = q.shape;
    shape.pop_back();
    if (last) { shape.push_back(*last); }
    return shape;
}

std::vector<float> zeros(const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) {
        const auto factor = static_cast<std::size_t>(extent);
        if (factor != 0 && count > measure::available_memory() / sizeof(float) / factor) {
            throw std::bad_alloc();
        }
        count *= factor;
    }
    return std::vector<float>(count);
}

options options_of(const run_options& given) {
    if (given.scale && !std::isfinite(*given.scale)) {
        throw usage_error("--scale: it must be a finite number");
    }
    options how;
    how.scale = given.scale;
    how.threads = given.threads;
    if (given.causal == "bottom-right") { how.causal = causal::bottom_right; }
    if (given.causal == "top-left") { how.causal = causal::top_left; }
    return how;
}

/// Whether an option was given without a value, as versions of the parser tell it.
bool is_bare(const std::string& value) { return value.empty() || value == "true"; }

/// What is wrong with a value of --causal; nothing if there is none.
std::string check_alignment(const std::string& value) {
    if (is_bare(value) || value == "bottom-right" || value == "top-left") { return {}; }
    return "'" + value + "' given; it is bottom-right or top-left";
}

void run(const run_options& given) {
    if (given.lse == given.out) {
        throw usage_error("--lse: '" + given.lse + "' given, which is also --out");
    }
    options how = options_of(given);
    const isa which = choose_isa(given.isa);
    output_file out_file("--out", given.out);
    std::optional<output_file> lse_file;
    if (!given.lse.empty()) { lse_file.emplace("--lse", given.lse); }
    const array q = read_npy("--q", given.q);
    const array k = read_npy("--k", given.k);
    const array v = read_npy("--v", given.v);
    if (k.shape.size() != q.shape.size() || v.shape.size() != q.shape.size()) {
        throw run_error("--q has " + std::to_string(q.shape.size()) + " dimensions, --k " +
                        std::to_string(k.shape.size()) + " and --v " + std::to_string(v.shape.size()) +
                        "; they must be as many");
    }
    const const_tensor queries = q.view();
    const std::int64_t value_dim = v.shape.back();
    const std::vector<std::int64_t> out_shape = shape_like(q, value_dim);
    const std::vector<std::int64_t> lse_shape = shape_like(q, std::nullopt);
    std::vector<float> out = zeros(out_shape);
    std::vector<float> lse = zeros(lse_file ? lse_shape : std::vector<std::int64_t>{0});
    if (lse_file) { how.lse = row_values(lse.data(), queries.batch(), queries.heads(), queries.tokens()); }
    const tensor out_view = bhsd(out.data(), queries.batch(), queries.heads(), queries.tokens(), value_dim);

    const plan planned = plan_attention(queries, k.view(), v.view(), out_view, how);
    const measure::stopwatch watch(planned.threads);
    attention(queries, k.view(), v.view(), out_view, how);
    const measure::duration took = watch.elapsed();

    // Both are written before either gets its name.
    write_npy(out_file, out_shape, out);
    if (lse_file) { write_npy(*lse_file, lse_shape, lse); }
    out_file.commit();
    if (lse_file) { lse_file->commit(); }
    std::cout << format_count(queries.heads()) << " heads, " << format_count(queries.tokens()) << " queries, "
              << format_count(k.view().tokens()) << " keys: " << format_seconds(took.wall) << " on "
              << planned.threads << (planned.threads == 1 ? " thread (" : " threads (") << isa_name(which)
              << "), " << format_bytes(planned.scratch_bytes) << " of scratch\nWritten: " << given.out;
    if (lse_file) { std::cout << " and " << given.lse; }
    std::cout << '\n';
}

}  // namespace

void add_run(CLI::App& app) {
    const auto given = std::make_shared<run_options>();
    CLI::App* command = app.add_subcommand("run", "Attention on your own .npy files");
    command->footer(
        "Files hold float32 or float16, [heads, tokens, head_dim] or [batch, heads, tokens, head_dim]. The "
        "output is\n"
        "float32. It appears under its name only when it is complete.");
    command->add_option("--q", given->q, "Queries, .npy")->required();
    command->add_option("--k", given->k, "Keys, .npy")->required();
    command->add_option("--v", given->v, "Values, .npy")->required();
    command->add_option("--out", given->out, "Where to write the output, .npy")->required();
    command->add_option("--lse", given->lse, "Where to write the log-sum-exp of each query's scores, .npy");
    command->add_option("--scale", given->scale, "Factor on the scores; 1 / sqrt(head_dim) by default");
    const CLI::Option* mask = command
                                  ->add_option("--causal", given->causal,
                                               "Causal mask: bottom-right (the default: the last query sees "
                                               "all keys) or top-left (the first "
                                               "query sees the first key)")
                                  ->expected(0, 1)
                                  ->check(CLI::Validator(check_alignment, "[bottom-right|top-left]"));
    add_threads_option(*command, given->threads);
    add_isa_option(*command, given->isa);
    command->callback([given, mask] {
        if (mask->count() > 0 && is_bare(given->causal)) { given->causal = "bottom-right"; }
        run(*given);
    });
}

}  // namespace tilewise::cli

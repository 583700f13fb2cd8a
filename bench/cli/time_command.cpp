// tilewise time: how long calls on a user's own .npy files take, call by call, beside what the machine
// allows.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <tilewise/attention.hpp>

#include "clock.hpp"
#include "commands.hpp"
#include "errors.hpp"
#include "limits.hpp"
#include "machine.hpp"
#include "naive.hpp"
#include "npy.hpp"
#include "output_file.hpp"
#include "stored.hpp"

namespace tilewise::cli {
namespace {

struct time_options {
    std::string q, k, v, out, isa;
    std::string q_type = "f32";
    std::string kv_type = "f32";
    std::string naive;
    std::string arithmetic = "exact";
    bool causal = false;
    bool on_request = false;
    int threads = 0;
    int repeats = 5;
};

const std::vector<element_type> types = {element_type::f32,  element_type::f64,  element_type::f16,
                                         element_type::bf16, element_type::q8_0, element_type::q4_0};

element_type type_named(const std::string& name) {
    const auto found = std::find_if(types.begin(), types.end(),
                                    [&](element_type type) { return measure::name_of(type) == name; });
    return *found;  // the parser has checked it
}

/// A tensor [batch, heads, tokens, head_dim] of a file, stored as asked for.
class stored_tensor {
public:
    stored_tensor(const std::string& option, const std::string& path, const std::string& type) {
        const array from = read_npy(option, path);
        view_ = from.view();
        if (from.fortran_order) { throw run_error(option + ": '" + path + "' is in Fortran order"); }
        const element_type stored = type_named(type);
        if (view_.head_dim() % block_of(stored).elements != 0) {
            throw run_error(option + ": head_dim is " + std::to_string(view_.head_dim()) + ", and " + type +
                            " has blocks of " + std::to_string(block_of(stored).elements));
        }
        floats_ = from.to_f32();
        // At a multiple of 64 bytes, in whole pages, as the measure of the read bandwidth wants it.
        const std::vector<std::byte> bytes = measure::stored_as(stored, floats_);
        bytes_ = (bytes.size() / 4096 + 1) * 4096;
        memory_ = measure::allocate_aligned(bytes_ / sizeof(float));
        std::fill_n(memory_.get(), bytes_ / sizeof(float), 0.0F);
        std::memcpy(memory_.get(), bytes.data(), bytes.size());
        view_.data = memory_.get();
        view_.type = stored;
        needed_bytes_ = static_cast<double>(bytes.size());
    }

    [[nodiscard]] const const_tensor& view() const { return view_; }
    [[nodiscard]] const std::vector<float>& floats() const { return floats_; }
    [[nodiscard]] const void* memory() const { return memory_.get(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] double needed_bytes() const { return needed_bytes_; }

private:
    const_tensor view_;
    std::vector<float> floats_;
    measure::aligned_buffer memory_;
    std::size_t bytes_ = 0;
    double needed_bytes_ = 0;
};

/// What is timed: the library, or the naive formulation.
class timed_call {
public:
    explicit timed_call(const time_options& given)
        : q_("--q", given.q, given.q_type),
          k_("--k", given.k, given.kv_type),
          v_("--v", given.v, given.kv_type),
          isa_(choose_isa(given.isa)) {
        const const_tensor& q = q_.view();
        const std::int64_t value_dim = v_.view().head_dim();
        shape_ = {q.batch(), q.heads(), q.tokens(), value_dim};
        const auto count = static_cast<std::size_t>(q.batch() * q.heads() * q.tokens() * value_dim);
        if (q.type == element_type::f64) {
            out_f64_.resize(count);
            out_view_ = bhsd(out_f64_.data(), q.batch(), q.heads(), q.tokens(), value_dim);
        } else {
            out_.resize(count);
            out_view_ = bhsd(out_.data(), q.batch(), q.heads(), q.tokens(), value_dim);
        }
        how_.causal = given.causal ? causal::bottom_right : causal::none;
        how_.threads = given.threads;
        how_.arithmetic = arithmetic_named(given.arithmetic);
        plan_ = plan_attention(q, k_.view(), v_.view(), out_view_, how_);
        if (!given.naive.empty()) { make_naive(given); }
    }

    void run() {
        if (naive_) {
            naive_->run(q_.floats().data(), k_.floats().data(), v_.floats().data(), out_.data());
        } else {
            attention(q_.view(), k_.view(), v_.view(), out_view_, how_);
        }
    }

    [[nodiscard]] measure::work least_work() const {
        const double bytes = q_.needed_bytes() + k_.needed_bytes() + v_.needed_bytes() +
                             4.0 * static_cast<double>(out_.size()) +
                             8.0 * static_cast<double>(out_f64_.size());
        return {plan_.flops, bytes, k_.memory(), k_.bytes(), v_.memory(), v_.bytes()};
    }

    [[nodiscard]] const plan& planned() const { return plan_; }
    [[nodiscard]] std::size_t scratch_bytes() const {
        return naive_ ? naive_->scratch_bytes() : plan_.scratch_bytes;
    }
    [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
    /// In f32, as files have it.
    [[nodiscard]] std::vector<float> out() const {
        return out_f64_.empty() ? out_ : std::vector<float>(out_f64_.begin(), out_f64_.end());
    }
    [[nodiscard]] measure::numbers peak() const {
        return measure::numbers_of(q_.view().type, plan_.arithmetic);
    }

private:
    void make_naive(const time_options& given) {
        plan_.arithmetic = arithmetic::exact;
        const const_tensor& q = q_.view();
        out_.resize(out_.size() + out_f64_.size());
        out_f64_.clear();
        const const_tensor& k = k_.view();
        plan_.threads = given.threads == 0 ? measure::default_threads() : given.threads;
        const bool openblas = given.naive == "openblas";
        if (openblas && !measure::has_openblas()) {
            throw usage_error("--naive: this build has no OpenBLAS");
        }
        const auto products = openblas ? measure::naive_products::openblas : measure::naive_products::loops;
        const measure::naive_shape shape{
            q.batch(),     q.heads(),    k.heads(),
            q.tokens(),    k.tokens(),   q.head_dim(),
            shape_.back(), given.causal, 1.0F / std::sqrt(static_cast<float>(q.head_dim()))};
        naive_ = std::make_unique<measure::naive_attention>(shape, products, isa_, plan_.threads);
    }

    stored_tensor q_;
    stored_tensor k_;
    stored_tensor v_;
    tilewise::isa isa_;
    std::vector<std::int64_t> shape_;
    std::vector<float> out_;
    std::vector<double> out_f64_;
    tensor out_view_;
    options how_;
    plan plan_;
    std::unique_ptr<measure::naive_attention> naive_;
};

/// One line: a batch of calls, and the limits measured right after it.
void time_calls(timed_call& call, const measure::limits& most, int calls) {
    const int threads = call.planned().threads;
    const measure::stopwatch watch(threads);
    for (int i = 0; i < calls; ++i) { call.run(); }
    const measure::duration passed = watch.elapsed();
    const measure::limit_rates rates = most.rates();
    const nlohmann::ordered_json line = {{"calls", calls},
                                         {"wall_seconds", passed.wall / calls},
                                         {"cpu_seconds", passed.cpu / calls},
                                         {"peak_gflops", rates.peak_gflops},
                                         {"read_gbps", rates.read_gbps},
                                         {"least_seconds", most.seconds(rates)}};
    std::cout << line.dump() << std::endl;
}

void write_output(const time_options& given, const timed_call& call) {
    if (given.out.empty()) { return; }
    output_file file("--out", given.out);
    write_npy(file, call.shape(), call.out());
    file.commit();
}

void time_all(const time_options& given) {
    timed_call call(given);
    const measure::limits most(choose_isa(given.isa), call.peak(), call.planned().threads, call.least_work());
    call.run();  // starts the threads, and touches all memory
    write_output(given, call);
    const nlohmann::ordered_json first = {
        {"isa", isa_name(choose_isa(given.isa))}, {"arithmetic", name_of(call.planned().arithmetic)},
        {"threads", call.planned().threads},      {"scratch_bytes", call.scratch_bytes()},
        {"flops", call.planned().flops},          {"bytes", call.least_work().bytes}};
    std::cout << first.dump() << std::endl;
    if (!given.on_request) {
        for (int i = 0; i < given.repeats; ++i) { time_calls(call, most, 1); }
        return;
    }
    for (int calls = 0; std::cin >> calls && calls > 0;) { time_calls(call, most, calls); }
}

}  // namespace

void add_time(CLI::App& app) {
    const auto given = std::make_shared<time_options>();
    CLI::App* command = app.add_subcommand("time", "Times calls on your own .npy files, as lines of JSON");
    command->footer(
        "Files are as those of 'run'; they are converted to the given types first. The first line says what "
        "a "
        "call\n"
        "is; each further one is a call, and the machine's limits right after it.");
    std::vector<std::string> names;
    names.reserve(types.size());
    for (const element_type type : types) { names.emplace_back(measure::name_of(type)); }
    command->add_option("--q", given->q, "Queries, .npy")->required();
    command->add_option("--k", given->k, "Keys, .npy")->required();
    command->add_option("--v", given->v, "Values, .npy")->required();
    command->add_option("--out", given->out, "Where to write the output, .npy");
    command->add_option("--type", given->q_type, "How queries are stored: f32, f64, f16 or bf16")
        ->check(CLI::IsMember({"f32", "f64", "f16", "bf16"}))
        ->capture_default_str();
    command->add_option("--kv-type", given->kv_type, "How keys and values are stored")
        ->check(CLI::IsMember(names))
        ->capture_default_str();
    command->add_flag("--causal", given->causal, "Causal mask, the last query sees all keys");
    command
        ->add_option("--naive", given->naive, "Time the naive formulation instead, f32, with these products")
        ->check(CLI::IsMember({"openblas", "loops"}));
    command->add_option("--repeat", given->repeats, "How many calls")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    command->add_flag("--on-request", given->on_request,
                      "Instead, for each number on standard input, time so many calls as one");
    add_threads_option(*command, given->threads);
    add_isa_option(*command, given->isa);
    add_arithmetic_option(*command, given->arithmetic);
    command->callback([given] { time_all(*given); });
}

}  // namespace tilewise::cli

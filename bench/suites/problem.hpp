// The tensors and options of one shape, ready to run.

#ifndef TILEWISE_SUITES_PROBLEM_HPP
#define TILEWISE_SUITES_PROBLEM_HPP

#include <cstdint>
#include <memory>
#include <vector>

#include <tilewise/attention.hpp>

#include "limits.hpp"
#include "shape.hpp"
#include "storage.hpp"

namespace tilewise::suites {

class problem {
public:
    /// Throws std::bad_alloc if its memory cannot be had.
    explicit problem(const shape& s);
    problem(const problem&) = delete;
    problem& operator=(const problem&) = delete;

    void run() const { attention(q_, k_, v_, out_, how_); }
    [[nodiscard]] tilewise::plan plan() const { return plan_attention(q_, k_, v_, out_, how_); }

    /// What a call has to do at least: 2 (head_dim + value_dim) operations per visible score; every element
    /// of q, k, v and a mask read once, and of the output written.
    [[nodiscard]] measure::work least_work() const;

private:
    void place_tensors();
    void place_result();
    void set_mask();
    void set_scales();
    [[nodiscard]] double visible_scores() const;

    shape s_;
    storage q_memory_;
    storage k_memory_;
    storage v_memory_;
    storage mask_memory_;
    storage result_;
    std::vector<float> scales_;
    std::vector<float> per_head_;
    std::vector<std::int64_t> documents_;
    std::vector<std::uint8_t> blocks_;
    const_tensor q_, k_, v_;
    tensor out_;
    options how_;
};

/// The problem of this shape. The last one is kept: a benchmark is called several times with the same.
[[nodiscard]] std::shared_ptr<const problem> problem_of(const shape& s);

}  // namespace tilewise::suites

#endif

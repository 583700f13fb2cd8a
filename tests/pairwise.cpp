#include "pairwise.hpp"

namespace tilewise_tests {
namespace {

// The pairs that are still to be covered, as a table over (axis, value, axis, value).
class open_pairs {
public:
    explicit open_pairs(const std::vector<std::size_t>& sizes) {
        for (const std::size_t size : sizes) {
            first_.push_back(values_);
            values_ += size;
        }
        open_.assign(values_ * values_, true);
    }

    [[nodiscard]] bool is_open(std::size_t axis, std::size_t value, std::size_t other,
                               std::size_t other_value) const {
        return open_[index(axis, value, other, other_value)];
    }

    void close(std::size_t axis, std::size_t value, std::size_t other, std::size_t other_value) {
        open_[index(axis, value, other, other_value)] = false;
        open_[index(other, other_value, axis, value)] = false;
    }

    void close_all_of(const selection& chosen) {
        for (std::size_t axis = 0; axis < chosen.size(); ++axis) {
            for (std::size_t other = 0; other < axis; ++other) {
                close(axis, chosen[axis], other, chosen[other]);
            }
        }
    }

    /// How many open pairs a value would close, with what is chosen already.
    [[nodiscard]] std::size_t gain(const selection& chosen, std::size_t axis, std::size_t value) const {
        std::size_t gained = 0;
        for (std::size_t other = 0; other < chosen.size(); ++other) {
            if (other == axis || chosen[other] == unset) { continue; }
            gained += is_open(axis, value, other, chosen[other]) ? 1U : 0U;
        }
        return gained;
    }

private:
    [[nodiscard]] std::size_t index(std::size_t axis, std::size_t value, std::size_t other,
                                    std::size_t other_value) const {
        return (first_[axis] + value) * values_ + first_[other] + other_value;
    }

    std::vector<std::size_t> first_;
    std::size_t values_ = 0;
    std::vector<bool> open_;
};

using allowed_function = std::function<bool(const selection&)>;

// Sets the axes that are unset, each to the allowed value that closes most pairs; among equals, values
// take turns.
void complete(selection& chosen, const std::vector<std::size_t>& sizes, const open_pairs& open,
              const allowed_function& allowed, std::size_t turn) {
    for (std::size_t axis = 0; axis < chosen.size(); ++axis) {
        if (chosen[axis] != unset) { continue; }
        std::size_t best = unset;
        std::size_t best_gain = 0;
        for (std::size_t step = 0; step < sizes[axis]; ++step) {
            const std::size_t value = (step + turn) % sizes[axis];
            selection candidate = chosen;
            candidate[axis] = value;
            const std::size_t gain = open.gain(chosen, axis, value);
            if ((best != unset && gain <= best_gain) || !allowed(candidate)) { continue; }
            best = value;
            best_gain = gain;
        }
        chosen[axis] = best;
    }
}

}  // namespace

std::vector<selection> cover_pairs(const std::vector<std::size_t>& sizes, const allowed_function& allowed) {
    open_pairs open(sizes);
    std::vector<selection> made;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        for (std::size_t other = axis + 1; other < sizes.size(); ++other) {
            for (std::size_t pair = 0; pair < sizes[axis] * sizes[other]; ++pair) {
                const std::size_t value = pair / sizes[other];
                const std::size_t other_value = pair % sizes[other];
                if (!open.is_open(axis, value, other, other_value)) { continue; }
                selection chosen(sizes.size(), unset);
                chosen[axis] = value;
                chosen[other] = other_value;
                if (!allowed(chosen)) { continue; }
                complete(chosen, sizes, open, allowed, made.size());
                open.close_all_of(chosen);
                made.push_back(chosen);
            }
        }
    }
    return made;
}

}  // namespace tilewise_tests

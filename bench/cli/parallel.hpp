// Loops on several threads, for what the program checks.

#ifndef TILEWISE_CLI_PARALLEL_HPP
#define TILEWISE_CLI_PARALLEL_HPP

#include <cstdint>
#include <exception>

namespace tilewise::cli {

/// Calls body(0) .. body(count - 1) in any order. Throws what one of the calls threw.
template <class Body>
void for_each_index(std::int64_t count, [[maybe_unused]] int threads, const Body& body) {
    std::exception_ptr failure;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i) {
        try {
            body(i);
        } catch (...) {
#pragma omp critical
            failure = std::current_exception();
        }
    }
    if (failure) { std::rethrow_exception(failure); }
}

}  // namespace tilewise::cli

#endif

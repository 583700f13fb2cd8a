// Counts what is allocated, by whomever: this program replaces operator new, and with glibc malloc too.

#ifndef TILEWISE_TESTS_ALLOCATION_COUNTER_HPP
#define TILEWISE_TESTS_ALLOCATION_COUNTER_HPP

#include <cstddef>
#include <cstdint>

namespace tilewise_tests {

/// Counts from its construction on, in all threads. One at a time.
class allocation_counter {
public:
    allocation_counter();
    ~allocation_counter();
    allocation_counter(const allocation_counter&) = delete;
    allocation_counter& operator=(const allocation_counter&) = delete;

    /// The bytes asked for, whether or not they were given back since.
    [[nodiscard]] std::size_t bytes() const;
    /// The largest single request.
    [[nodiscard]] std::size_t largest() const;
    /// The number of requests.
    [[nodiscard]] std::size_t requests() const;
};

/// Makes requests of more than `limit` bytes fail with std::bad_alloc for the lifetime of the object.
/// Only those of operator new.
class allocation_limit {
public:
    explicit allocation_limit(std::size_t limit);
    ~allocation_limit();
    allocation_limit(const allocation_limit&) = delete;
    allocation_limit& operator=(const allocation_limit&) = delete;
};

/// Makes one request of operator new fail with std::bad_alloc: the one with this number, counted from 0 since
/// the construction, in all threads.
class allocation_failure {
public:
    explicit allocation_failure(std::size_t number);
    ~allocation_failure();
    allocation_failure(const allocation_failure&) = delete;
    allocation_failure& operator=(const allocation_failure&) = delete;

    [[nodiscard]] bool happened() const;
};

/// Blocks of operator new that have not been given back.
std::int64_t blocks_in_use();

}  // namespace tilewise_tests

#endif

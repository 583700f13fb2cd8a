// A thread pool as a host has one, for options::parallel_for.

#ifndef TILEWISE_TESTS_THREAD_POOL_HPP
#define TILEWISE_TESTS_THREAD_POOL_HPP

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <tilewise/attention.hpp>
#include <vector>

namespace tilewise_tests {

class thread_pool {
public:
    /// So many threads, beside those that call.
    explicit thread_pool(int workers);
    ~thread_pool();
    thread_pool(const thread_pool&) = delete;
    thread_pool& operator=(const thread_pool&) = delete;

    /// Where the pool is busy, with a call from another thread or from one of its own, the caller does all.
    [[nodiscard]] tilewise::parallel_for parallel_for() { return {run, this}; }
    /// Calls of the body so far.
    [[nodiscard]] std::size_t calls() const { return calls_; }

private:
    static void run(void* pool, int threads, void (*body)(void*, std::size_t), void* context);
    void share(std::size_t threads);
    void take_part();
    void work();

    std::vector<std::thread> workers_;
    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ends_ = false;
    // Of the job at hand.
    void (*body_)(void*, std::size_t) = nullptr;
    void* context_ = nullptr;
    std::size_t next_ = 0;
    std::size_t count_ = 0;
    std::size_t done_ = 0;
    std::atomic<std::size_t> calls_ = 0;
};

/// The options, with threads of a pool where the library was built without OpenMP.
tilewise::options threaded(tilewise::options how);

}  // namespace tilewise_tests

#endif

#include "thread_pool.hpp"

namespace tilewise_tests {

thread_pool::thread_pool(int workers) {
    for (int n = 0; n < workers; ++n) {
        workers_.emplace_back([this] { work(); });
    }
}

thread_pool::~thread_pool() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) { worker.join(); }
}

void thread_pool::run(void* pool, int threads, void (*body)(void*, std::size_t), void* context) {
    thread_pool& self = *static_cast<thread_pool*>(pool);
    if (self.busy_.test_and_set()) {
        for (int index = 0; index < threads; ++index) { body(context, static_cast<std::size_t>(index)); }
        return;
    }
    self.body_ = body;
    self.context_ = context;
    self.share(static_cast<std::size_t>(threads));
    self.busy_.clear();
}

void thread_pool::share(std::size_t threads) {
    {
        const std::lock_guard lock(mutex_);
        next_ = 0;
        done_ = 0;
        count_ = threads;
    }
    changed_.notify_all();
    take_part();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == count_; });
}

void thread_pool::take_part() {
    std::unique_lock lock(mutex_);
    while (next_ < count_) {
        const std::size_t index = next_++;
        lock.unlock();
        ++calls_;
        body_(context_, index);
        lock.lock();
        if (++done_ == count_) { changed_.notify_all(); }
    }
}

void thread_pool::work() {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return ends_ || next_ < count_; });
            if (ends_) { return; }
        }
        take_part();
    }
}

tilewise::options threaded(tilewise::options how) {
#ifndef TILEWISE_TESTS_HAVE_OPENMP
    static thread_pool pool(3);
    if (how.threads > 0) { how.parallel_for = pool.parallel_for(); }
#endif
    return how;
}

}  // namespace tilewise_tests

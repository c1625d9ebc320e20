// A thread that makes items ahead of the one who uses them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/core/thread_context.h"

namespace lockstep::data {

// Threading:  produce() runs on the prefetcher's own thread, with the ThreadContext of the thread
//             that made the prefetcher; next() is for one consumer thread.
// Bounded:    at most `capacity` items wait. The thread sleeps while they do, and is woken when
//             half of them are used: waking a thread costs microseconds, and a small step has few.
// Errors:     what produce() throws reaches the consumer, after the items made before it.
// Shutdown:   the destructor waits for a produce() that is running, and drops what it made.
template <typename T>
class Prefetcher {
 public:
  // Makes the next item; nothing means that there are no more, and ends the thread.
  using Produce = std::function<std::optional<T>()>;

  // REQUIRES: capacity >= 1.
  Prefetcher(Produce produce, std::size_t capacity)
      : produce_(std::move(produce)),
        capacity_(capacity),
        thread_([this, context = thread_context()] { run(context); }) {}

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    producer_may_go_on_.notify_one();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next item, as soon as there is one; nothing after the last. Throws what produce() threw,
  // again at every further call.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    consumer_may_go_on_.wait(lock, [&] { return !items_.empty() || finished_; });
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> item = std::move(items_.front());
    items_.pop_front();
    const bool wake = items_.size() == capacity_ / 2;
    lock.unlock();
    if (wake) producer_may_go_on_.notify_one();
    return item;
  }

 private:
  void run(const ThreadContext& context) {
    const ThreadContextScope scope(context);
    std::exception_ptr error;
    try {
      while (std::optional<T> item = produce_()) {
        if (!put(std::move(*item))) return;
      }
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      finished_ = true;
    }
    consumer_may_go_on_.notify_one();
  }

  // False when the prefetcher is being destroyed.
  bool put(T item) {
    std::unique_lock lock(mutex_);
    items_.push_back(std::move(item));
    consumer_may_go_on_.notify_one();
    if (items_.size() == capacity_) {
      producer_may_go_on_.wait(lock, [&] { return stopping_ || items_.size() <= capacity_ / 2; });
    }
    return !stopping_;
  }

  Produce produce_;
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable consumer_may_go_on_;
  std::condition_variable producer_may_go_on_;
  std::deque<T> items_;
  bool finished_ = false;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace lockstep::data

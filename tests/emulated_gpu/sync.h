// Marks to wait for, and workers that run one task after another.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace emulated_gpu {

// A point that work passes once.
class Mark {
 public:
  using Clock = std::chrono::steady_clock;

  void pass();
  bool has_passed() const;
  void wait() const;
  // REQUIRES: has passed.
  Clock::time_point time() const { return time_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable passed_;
  bool has_passed_ = false;
  Clock::time_point time_;
};

// A thread with a queue. Destroying it lets the thread finish what is queued, and waits for
// nothing.
class Worker {
 public:
  Worker() = default;
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void submit(std::function<void()> task);

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // made, and the thread started, by the first task
};

}  // namespace emulated_gpu

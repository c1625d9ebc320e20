// Marks to wait for, and workers that run one task after another.
//
// The thread sanitizer is to see the order that CUDA promises, and no more: the locks inside this
// runtime are hidden from it, so that only a submitted task, a passed mark and a wait for it order
// what a test's threads and streams do.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace emulated_gpu {

// While one lives, the thread's memory accesses and locks belong to the runtime alone. Nests.
class Hidden {
 public:
  Hidden();
  ~Hidden();
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};

// Inside a Hidden: while one lives, accesses belong to the user, and are visible again.
class Visible {
 public:
  Visible();
  ~Visible();
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;

 private:
  int depth_;
};

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

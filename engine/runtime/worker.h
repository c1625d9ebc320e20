// One thread that runs the tasks it is given, in order.
//
// Stands behind the communication stream of a CPU device, and behind the line of work that each
// device contributes to parallel_apply and to backward.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/runtime/wait.h"

namespace lockstep::runtime {

class Worker {
 public:
  // prompt: short tasks that others wait for, on cores that compute. When one comes, it takes a
  // core at once, instead of waiting until the computing thread's slice of time has passed; while
  // it waits it leaves the core alone (never_spin).
  enum class Slices { ordinary, prompt };
  // The thread starts with the first task. name is shown by debuggers (15 characters at most).
  explicit Worker(std::string name, Slices slices = Slices::ordinary)
      : name_(std::move(name)), slices_(slices) {}
  // Finishes the tasks already given.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // A task must not throw: whoever posts it carries errors back itself.
  void post(std::function<void()> task);

  // Tasks given so far, and tasks finished; both only grow (modulo 2^32).
  std::uint32_t num_posted() const { return posted_.load(); }
  const WaitWord& num_finished() const { return finished_; }

 private:
  void main();

  std::string name_;
  Slices slices_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  WaitWord posted_{0};
  WaitWord finished_{0};
  std::thread thread_;
};

}  // namespace lockstep::runtime

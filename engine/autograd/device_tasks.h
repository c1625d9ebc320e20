// Runs the tasks of one backward pass, each on the line of work of its device.
//
// Tasks of the caller's device run on the caller's thread; those of other devices run on these
// devices' workers, so that replicas run backward at the same time. With Issue::by_caller
// (thread_context.h) the caller's thread runs them all. The caller's ThreadContext goes with the
// work, with gradients off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/wait.h"

namespace lockstep {

class DeviceTasks : public std::enable_shared_from_this<DeviceTasks> {
 public:
  struct Task {
    Device device;
    std::uint64_t priority = 0;  // a device runs the highest first
    std::function<void()> run;   // may add tasks
  };

  // devices: all that tasks may have.
  explicit DeviceTasks(std::vector<Device> devices);

  // Threads: any.
  void add(Task task);

  // Runs all tasks, and those that they add. Rethrows the first error; then tasks that had not
  // begun are dropped. Nothing of a task is alive afterwards.
  // REQUIRES: a shared_ptr owns this; it is called once.
  void run(Device home);

 private:
  void work(Device own);
  bool run_one(std::optional<Device> only);
  bool is_over();
  void wait_for_running_tasks();

  const std::vector<Device> devices_;
  ThreadContext context_;

  std::mutex mutex_;  // guards the members below
  std::vector<Task> ready_;
  std::vector<Device> busy_;  // devices on which a thread runs a task: one at a time on each
  bool has_failed_ = false;
  std::exception_ptr error_;   // the first one
  runtime::WaitWord changed_;  // counts added and finished tasks where there are several devices
};

}  // namespace lockstep

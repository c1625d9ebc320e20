#include "engine/autograd/device_tasks.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/logical_device.h"
#include "engine/trace/span.h"

namespace lockstep {

DeviceTasks::DeviceTasks(std::vector<Device> devices)
    : devices_(std::move(devices)), context_(thread_context()) {
  context_.grad_enabled = false;
}

void DeviceTasks::add(Task task) {
  const std::lock_guard lock(mutex_);
  ready_.push_back(std::move(task));
  if (devices_.size() > 1) changed_.add(1);
}

void DeviceTasks::run(Device home) {
  const auto has_worker = [&](Device device) {
    return device != home && context_.issue == Issue::by_workers;
  };
  for (const Device device : devices_) {
    if (has_worker(device)) runtime::logical_device(device).worker().start();  // before any task
  }
  for (const Device device : devices_) {
    if (!has_worker(device)) continue;
    // A worker may look at the tasks after run() has returned.
    runtime::logical_device(device).worker().post([self = shared_from_this(), device] {
      const trace::TrackScope track(device.index);
      self->work(device);
    });
  }
  work(home);
  wait_for_running_tasks();
  std::unique_lock lock(mutex_);
  // A worker that still looks at the tasks must not be the last to hold the error.
  const std::exception_ptr error = std::exchange(error_, nullptr);
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

// True if no task is left. Only a running task adds others.
bool DeviceTasks::is_over() {
  const std::lock_guard lock(mutex_);
  return has_failed_ || (ready_.empty() && busy_.empty());
}

// A device's line of work: runs its tasks until all are done. If it is idle, it takes a task of
// another device, because that device's worker may be busy with another pass, which may be waiting
// for this one.
void DeviceTasks::work(Device own) {
  const ThreadContextScope scope(context_);
  while (true) {
    const std::uint32_t seen = changed_.load();
    if (run_one(own)) continue;
    if (is_over()) return;
    if (context_.issue == Issue::by_caller && run_one({})) continue;  // no other thread will
    const trace::ScopedSpan span(trace::Lane::host, trace::Category::wait,
                                 "wait for other devices");
    if (runtime::spin_until([&] { return changed_.load() != seen; })) continue;
    if (run_one({})) continue;
    changed_.wait_while_equal(seen);
  }
}

// Runs the most urgent ready task, of this device only or of any. Returns false if there is none on
// a device that no other thread uses.
bool DeviceTasks::run_one(std::optional<Device> only) {
  std::unique_lock lock(mutex_);
  auto best = ready_.end();
  for (auto task = ready_.begin(); task != ready_.end() && !has_failed_; ++task) {
    if (only && task->device != *only) continue;
    if (std::ranges::find(busy_, task->device) != busy_.end()) continue;
    if (best == ready_.end() || task->priority > best->priority) best = task;
  }
  if (best == ready_.end()) return false;
  Task task = std::move(*best);
  ready_.erase(best);
  busy_.push_back(task.device);
  lock.unlock();
  std::exception_ptr failure;
  try {
    const bool is_one_of_several = devices_.size() > 1;
    const trace::TrackScope track(is_one_of_several ? task.device.index : trace::current_track());
    task.run();
  } catch (...) {
    failure = std::current_exception();
  }
  task.run = nullptr;
  lock.lock();
  std::erase(busy_, task.device);
  if (failure && !std::exchange(has_failed_, true)) error_ = std::move(failure);
  if (devices_.size() > 1) changed_.add(1);
  return true;
}

// After an error other devices may still be running a task.
void DeviceTasks::wait_for_running_tasks() {
  while (true) {
    const std::uint32_t seen = changed_.load();
    {
      const std::lock_guard lock(mutex_);
      if (busy_.empty()) return ready_.clear();
    }
    changed_.wait_while_equal(seen);
  }
}

}  // namespace lockstep

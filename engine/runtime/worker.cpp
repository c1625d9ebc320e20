#include "engine/runtime/worker.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::runtime {
namespace {

// The kernel's struct sched_attr, whose header cannot stand beside <sched.h>.
struct ScheduleAttributes {
  std::uint32_t size = sizeof(ScheduleAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t slice_ns = 0;  // sched_runtime
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};

// From 6.12 on, Linux lets a thread that wakes up preempt one with a longer slice. Older kernels
// prefer whoever has slept, and take no notice of this.
void ask_for_short_slices() {
  constexpr std::uint64_t kShortestSlice = 100'000;  // ns
  ScheduleAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.slice_ns = kShortestSlice;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // refused: as it was
}

}  // namespace

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.add(1);
  if (thread_.joinable()) thread_.join();
}

void Worker::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { main(); });
      pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
    }
    posted_.add(1);
  }
}

void Worker::main() {
  if (slices_ == Slices::prompt) {
    ask_for_short_slices();
    never_spin();
  }
  while (true) {
    const std::uint32_t seen = posted_.load();
    std::function<void()> task;
    {
      std::lock_guard lock(mutex_);
      if (!queue_.empty()) {
        task = std::move(queue_.front());
        queue_.pop_front();
      } else if (stopping_) {
        return;
      }
    }
    if (!task) {
      posted_.wait_while_equal(seen);
      continue;
    }
    task();
    task = nullptr;  // what the task held is released before it counts as finished
    finished_.add(1);
  }
}

}  // namespace lockstep::runtime

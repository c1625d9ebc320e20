#include "tests/emulated_gpu/sync.h"

#include <deque>
#include <thread>
#include <utility>

namespace emulated_gpu {
void Mark::pass() {
  const std::lock_guard lock(mutex_);
  has_passed_ = true;
  time_ = Clock::now();
  passed_.notify_all();
}

bool Mark::has_passed() const {
  const std::lock_guard lock(mutex_);
  return has_passed_;
}

void Mark::wait() const {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [this] { return has_passed_; });
}

struct Worker::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool is_closed = false;

  void run() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return is_closed || !tasks.empty(); });
        if (tasks.empty()) return;
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      task();
    }
  }
};

void Worker::submit(std::function<void()> task) {
  if (!queue_) {
    queue_ = std::make_shared<Queue>();
    std::thread([queue = queue_] { queue->run(); }).detach();
  }
  const std::lock_guard lock(queue_->mutex);
  queue_->tasks.push_back(std::move(task));
  queue_->changed.notify_one();
}

Worker::~Worker() {
  if (!queue_) return;
  const std::lock_guard lock(queue_->mutex);
  queue_->is_closed = true;
  queue_->changed.notify_one();
}

}  // namespace emulated_gpu

#include "engine/runtime/worker.h"

#include <pthread.h>

namespace lockstep::runtime {

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
  thread_id_.store(std::this_thread::get_id());
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

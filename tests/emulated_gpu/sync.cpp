#include "tests/emulated_gpu/sync.h"

#include <deque>
#include <thread>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace emulated_gpu {
namespace {

thread_local int hidden_depth = 0;

#if defined(__SANITIZE_THREAD__)
void hide() {
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
void show() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
void release(const void* object) {
  const Visible visible;
  __tsan_release(const_cast<void*>(object));
}
void acquire(const void* object) {
  const Visible visible;
  __tsan_acquire(const_cast<void*>(object));
}
#else
void hide() {}
void show() {}
void release(const void*) {}
void acquire(const void*) {}
#endif

}  // namespace

Hidden::Hidden() {
  if (hidden_depth++ == 0) hide();
}
Hidden::~Hidden() {
  if (--hidden_depth == 0) show();
}

Visible::Visible() : depth_(std::exchange(hidden_depth, 0)) {
  if (depth_ > 0) show();
}
Visible::~Visible() {
  hidden_depth = depth_;
  if (depth_ > 0) hide();
}

void Mark::pass() {
  release(this);
  const Hidden hidden;
  const std::lock_guard lock(mutex_);
  has_passed_ = true;
  time_ = Clock::now();
  passed_.notify_all();
}

bool Mark::has_passed() const {
  bool result = false;
  {
    const Hidden hidden;
    const std::lock_guard lock(mutex_);
    result = has_passed_;
  }
  if (result) acquire(this);
  return result;
}

void Mark::wait() const {
  {
    const Hidden hidden;
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [this] { return has_passed_; });
  }
  acquire(this);
}

struct Worker::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<std::function<void()>>> tasks;
  bool is_closed = false;

  void run() {
    const Hidden hidden;
    while (true) {
      std::unique_ptr<std::function<void()>> task;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return is_closed || !tasks.empty(); });
        if (tasks.empty()) return;
        task = std::move(tasks.front());
        tasks.pop_front();
      }
      acquire(task.get());
      (*task)();
    }
  }
};

void Worker::submit(std::function<void()> task) {
  auto owned = std::make_unique<std::function<void()>>(std::move(task));
  release(owned.get());
  if (!queue_) {
    queue_ = std::make_shared<Queue>();
    std::thread([queue = queue_] { queue->run(); }).detach();
  }
  const std::lock_guard lock(queue_->mutex);
  queue_->tasks.push_back(std::move(owned));
  queue_->changed.notify_one();
}

Worker::~Worker() {
  if (!queue_) return;
  const std::lock_guard lock(queue_->mutex);
  queue_->is_closed = true;
  queue_->changed.notify_one();
}

}  // namespace emulated_gpu

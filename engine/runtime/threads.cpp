#include "engine/runtime/threads.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::runtime {

namespace {

// The kernel's struct sched_attr; its header conflicts with <sched.h>.
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

// Since 6.12, Linux lets a thread that wakes up preempt one with a longer slice. Older kernels
// prefer threads that have slept, and ignore this.
void ask_for_short_slices() {
  constexpr std::uint64_t kShortestSlice = 100'000;  // ns
  ScheduleAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.slice_ns = kShortestSlice;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // a refusal changes nothing
}

}  // namespace

std::thread start_thread(std::function<void()> main) {
  try {
    return std::thread(std::move(main));
  } catch (const std::system_error& error) {
    fail(ErrorCode::Device, "threads",
         "the system starts no further thread ({}); use fewer devices or threads per device, "
         "or allow more processes (ulimit -u; pids.max of a container)",
         error.code().message());
  }
}

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.add(1);
  if (thread_.joinable()) thread_.join();
}

void Worker::start() {
  std::lock_guard lock(mutex_);
  start_locked();
}

void Worker::start_locked() {
  if (thread_.joinable()) return;
  thread_ = start_thread([this] { main(); });
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

void Worker::post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  start_locked();
  queue_.push_back(std::move(task));
  posted_.add(1);
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
  }
}

namespace {

constexpr std::uint32_t kOpen = 1u << 31;

// The calling thread's number, which is never reused; the system reuses its own numbers.
std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> num_threads{0};
  thread_local const std::uint64_t number = ++num_threads;
  return number;
}

// Binds other threads to the cores that the calling thread may run on.
void bind_as_caller(std::vector<std::thread>& threads) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (std::thread& thread : threads) {
    ::pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  }
}

}  // namespace

ThreadPool::ThreadPool(std::size_t num_threads) {
  require(num_threads >= 1, ErrorCode::Usage, "thread pool", "needs at least 1 thread");
  try {
    for (std::size_t i = 1; i < num_threads; ++i) {
      workers_.push_back(start_thread([this] { worker_main(); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stopping_.store(true);
  generation_.add(1);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::size_t num_tasks, const AnyTask& task) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    for (std::size_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  // The workers run on the cores of the caller, which must not change once it has used a pool.
  if (std::exchange(caller_, this_thread()) != this_thread()) bind_as_caller(workers_);
  task_ = &task;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen);
  generation_.add(1);
  work();
  // Closing the gate shuts out workers that wake up late; only those inside are waited for.
  std::uint32_t inside = gate_.add(kOpen);  // adding the top bit again clears it
  while (inside != 0) {
    gate_.wait_while_equal(inside);
    inside = gate_.load();
  }
  const std::exception_ptr error = std::exchange(error_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

void ThreadPool::work() {
  while (true) {
    const std::size_t i = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (i >= num_tasks_) return;
    try {
      (*task_)(i);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

void ThreadPool::worker_main() {
  std::uint32_t seen = 0;
  while (true) {
    generation_.wait_while_equal(seen);
    seen = generation_.load();
    if (stopping_.load()) return;
    if (!gate_.add_if_at_least(kOpen, 1)) continue;  // no job is open
    work();
    gate_.add(static_cast<std::uint32_t>(-1));
  }
}

}  // namespace lockstep::runtime

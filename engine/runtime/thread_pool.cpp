#include "engine/runtime/thread_pool.h"

#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/core_binding.h"

namespace lockstep::runtime {
namespace {

constexpr std::uint32_t kOpen = 1u << 31;

// Of a thread, as no other one has had: the system numbers a new one like one that has ended.
std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> num_threads{0};
  thread_local const std::uint64_t number = ++num_threads;
  return number;
}

}  // namespace

ThreadPool::ThreadPool(std::size_t num_threads) {
  require(num_threads >= 1, ErrorCode::Usage, "thread pool", "needs at least 1 thread");
  for (std::size_t i = 1; i < num_threads; ++i) workers_.emplace_back([this] { worker_main(); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.add(1);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::size_t num_tasks, TaskFunction function, void* context) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    for (std::size_t i = 0; i < num_tasks; ++i) function(context, i);
    return;
  }
  follow_caller();
  function_ = function;
  context_ = context;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen);
  generation_.add(1);
  work();
  // Closing shuts out workers that wake up late; only those inside are waited for.
  std::uint32_t inside = gate_.add(kOpen);  // adding the top bit again clears it
  while (inside != 0) {
    gate_.wait_while_equal(inside);
    inside = gate_.load();
  }
  const std::exception_ptr error = std::exchange(error_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

// A thread's cores do not change, once it has used a pool.
void ThreadPool::follow_caller() {
  if (std::exchange(caller_, this_thread()) != this_thread()) bind_as_caller(workers_);
}

void ThreadPool::work() {
  while (true) {
    const std::size_t i = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (i >= num_tasks_) return;
    try {
      function_(context_, i);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

bool ThreadPool::try_enter() {
  return gate_.add_if_at_least(kOpen, 1);
}

void ThreadPool::worker_main() {
  std::uint32_t seen = 0;
  while (true) {
    generation_.wait_while_equal(seen);
    seen = generation_.load();
    if (stopping_.load()) return;
    if (!try_enter()) continue;
    work();
    gate_.add(static_cast<std::uint32_t>(-1));
  }
}

}  // namespace lockstep::runtime

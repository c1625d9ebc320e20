// The CPU threads of a logical device: a worker, and the pool that runs its kernels; and the cores
// on which threads run (cpu_cores.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/wait.h"

namespace lockstep::runtime {

// Throws Error{Device} that says why the system starts no thread, and what to do.
std::thread start_thread(std::function<void()> main);

// One thread that runs the tasks it is given, in order.
//
// It runs a communicator's asynchronous calls (comm/work.h), and a device's share of parallel_apply
// and of backward.
class Worker {
 public:
  // prompt: short tasks that others wait for, on cores that compute. When one comes, it takes a
  // core at once instead of waiting for the end of the computing thread's slice of time; while it
  // waits it leaves the core alone (never_spin).
  enum class Slices { ordinary, prompt };
  // The thread starts with the first task. Debuggers show its name (15 characters at most).
  explicit Worker(std::string name, Slices slices = Slices::ordinary)
      : name_(std::move(name)), slices_(slices) {}
  // Finishes the tasks already given.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The thread, if it does not run yet. Throws as start_thread().
  void start();
  // A task must not throw: it must carry its errors back itself.
  // Throws as start() does; then the task is not run.
  void post(std::function<void()> task);

 private:
  void start_locked();
  void main();

  std::string name_;
  Slices slices_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  WaitWord posted_{0};  // counts tasks, and the end
  std::thread thread_;
};

// The CPU threads of one logical device.
//
// There is one persistent pool per device, so that a kernel pays for a hand-over (well under a
// microsecond while the workers spin), not for a thread start. The caller is one of the threads: a
// pool of one has no workers and costs nothing. The workers run on the cores that the caller is
// bound to.
class ThreadPool {
 public:
  // num_threads counts the calling thread; at least 1. Throws as start_thread().
  explicit ThreadPool(std::size_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t num_threads() const { return workers_.size() + 1; }

  // Calls task(i) once for every i in 0 ... num_tasks - 1, on any of the threads, and returns when
  // all are done. The first exception of a task is rethrown here.
  // Runs all of them on the caller if the pool is busy: from inside a task, or with another
  // thread's job.
  template <typename Task>
  void parallel_for(std::size_t num_tasks, Task&& task) {
    if (workers_.empty() || num_tasks <= 1) {
      for (std::size_t i = 0; i < num_tasks; ++i) task(i);
      return;
    }
    run(num_tasks, std::ref(task));
  }

 private:
  using AnyTask = std::function<void(std::size_t)>;

  void run(std::size_t num_tasks, const AnyTask& task);
  void work();  // takes tasks of the open job until none is left
  void worker_main();
  void stop();

  // The job; only written while no worker is inside.
  const AnyTask* task_ = nullptr;
  std::size_t num_tasks_ = 0;
  std::exception_ptr error_;
  std::mutex error_mutex_;
  alignas(64) std::atomic<std::size_t> next_task_{0};

  // Bit 31: a job is open. Lower bits: the number of workers inside it.
  alignas(64) WaitWord gate_{0};
  alignas(64) WaitWord generation_{0};  // changes with every job and at shutdown
  std::atomic<bool> stopping_{false};
  std::atomic<bool> busy_{false};  // a thread is inside run(), or in a task of it
  std::uint64_t caller_ = 0;       // the last job's
  std::vector<std::thread> workers_;
};

// --- cores ---
// The kernel often leaves two ranks on one core, for milliseconds or for a whole run, while another
// core has only waiting threads, and a collective waits for its slowest rank. So if there are
// enough cores, each rank of a host is bound to cores of its own: the allowed cores are cut into
// one part per rank, in their order.

// The cores that this process may use (its main thread's affinity mask, not the machine's count),
// in rising order.
std::vector<int> allowed_cores();
// How many there are; at least 1.
std::size_t num_cores();

// Part 1 of 2 of {0, 1, 2, 3} is {2, 3}. Empty if there are fewer cores than parts: then no rank is
// bound.
std::vector<int> part_of_cores(const std::vector<int>& cores, std::size_t part,
                               std::size_t num_parts);

// Binds the calling thread, and each thread that it starts from now on, to these cores; an empty
// list changes nothing. Safe between fork and exec.
void bind_to(const std::vector<int>& cores) noexcept;

}  // namespace lockstep::runtime

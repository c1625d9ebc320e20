// The context of a line of work, which is more than an OS thread's: its rank, and whether gradients
// are recorded.
//
// A stage that hands work to another thread copies the caller's context there by hand
// (ThreadContextScope); nothing is inherited silently.
#pragma once

#include <cstdint>

namespace lockstep {

// Who issues the work of several devices. by_workers: every device's worker, at the same time.
// by_caller: the calling thread, device after device. On CUDA issuing is short and the devices
// compute at the same time all the same; and one thread can capture the step of all of them.
enum class Issue : std::uint8_t { by_workers, by_caller };

struct ThreadContext {
  int rank = 0;              // of this line of work, in its world
  int world_size = 1;        // ranks in that world
  std::uint32_t group = 0;   // of ranks that are threads, as trace/observer.h numbers it; 0: none
  bool grad_enabled = true;  // see autograd/variable.h
  Issue issue = Issue::by_workers;
  // Dropout masks are drawn by these, so any sharding of a batch draws the same.
  std::uint64_t step = 0;       // training step: an optimizer's step() adds 1
  std::uint64_t first_row = 0;  // of the global batch, which is row 0 here: a DataLoader sets it
};

// The calling thread's context.
inline ThreadContext& thread_context() {
  thread_local ThreadContext context;
  return context;
}

// Installs a context for a scope, then puts back the one before.
class ThreadContextScope {
 public:
  explicit ThreadContextScope(const ThreadContext& context) : saved_(thread_context()) {
    thread_context() = context;
  }
  ~ThreadContextScope() { thread_context() = saved_; }
  ThreadContextScope(const ThreadContextScope&) = delete;
  ThreadContextScope& operator=(const ThreadContextScope&) = delete;

 private:
  ThreadContext saved_;
};

}  // namespace lockstep

// Settings that follow work from thread to thread: rank, gradient mode, and the step and row that
// dropout draws by.
//
// Code that hands work to another thread copies the caller's context there explicitly
// (ThreadContextScope); nothing is inherited silently.
#pragma once

#include <cstdint>

namespace lockstep {

// The threads that issue the work of several devices. by_workers: every device's worker, at the
// same time. by_caller: the calling thread, device after device. On CUDA, issuing is short and the
// devices still compute at the same time; and one thread can capture the step of all of them.
enum class Issue : std::uint8_t { by_workers, by_caller };

struct ThreadContext {
  int rank = 0;              // this line of work's, in its world
  int world_size = 1;        // ranks in that world
  std::uint32_t group = 0;   // numbered as in trace/observer.h; 0: none
  bool grad_enabled = true;  // see autograd/variable.h
  Issue issue = Issue::by_workers;
  // Dropout masks are drawn from these, so that any sharding of a batch draws the same masks.
  std::uint64_t step = 0;       // training step: an optimizer's step() adds 1
  std::uint64_t first_row = 0;  // number of row 0 within the global batch; a DataLoader sets it
};

// The calling thread's context.
inline ThreadContext& thread_context() {
  thread_local ThreadContext context;
  return context;
}

// Installs a context for a scope, then restores the previous one.
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

// A fiber: a stack of its own that one OS thread switches to and from.
//
// The threads of a CUDA block are fibers, so that one of them can stop at a barrier in the middle
// of a kernel and another goes on. Address and thread sanitizers are told about every switch.
#pragma once

#include <cstddef>

namespace emulated_gpu {

class Fiber {
 public:
  // The stack that the calling OS thread already runs on; only a place to switch back to.
  Fiber();
  // entry(argument) runs on the first switch to the fiber, and must never return.
  Fiber(void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves the running fiber `from` for this one, and returns when something switches back to it.
  // REQUIRES: both belong to the calling OS thread.
  void switch_from(Fiber& from);

 private:
  [[noreturn]] static void start(Fiber* fiber);

  void* stack_pointer_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* stack_ = nullptr;  // lowest address
  std::size_t num_stack_bytes_ = 0;
  Fiber* left_ = nullptr;       // who switched here last
  void* fake_stack_ = nullptr;  // the address sanitizer's
  void* tsan_fiber_ = nullptr;
  bool owns_stack_ = false;
};

}  // namespace emulated_gpu

// A fiber: a stack of its own that one OS thread switches to and from.
//
// The threads of a CUDA block are fibers, so that one of them can stop at a barrier in the middle
// of a kernel and another goes on.
#pragma once

namespace emulated_gpu {

class Fiber {
 public:
  // The stack that the calling OS thread already runs on; only a place to switch back to.
  Fiber() = default;
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
  void* memory_ = nullptr;  // its stack; nullptr: the thread's own
};

}  // namespace emulated_gpu

// Whether operations record how to differentiate themselves. A property of the line of work, so it
// travels to other threads with ThreadContext.
#pragma once

#include "engine/core/thread_context.h"

namespace lockstep {

inline bool grad_enabled() {
  return thread_context().grad_enabled;
}

// Inside this scope results do not require gradients.
class NoGradScope {
 public:
  NoGradScope() : saved_(thread_context().grad_enabled) { thread_context().grad_enabled = false; }
  ~NoGradScope() { thread_context().grad_enabled = saved_; }
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool saved_;
};

}  // namespace lockstep

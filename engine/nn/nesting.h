// A bound on how deep modules of modules are walked: every module inside another costs a few frames
// of the stack, which has an end.
#pragma once

#include <cstddef>

namespace lockstep::nn {

inline constexpr std::size_t kMaxNesting = 1000;

// Lives while the calling thread is inside one module.
// Throws Error{State} inside more than kMaxNesting of them.
class NestingScope {
 public:
  NestingScope();
  ~NestingScope();
  NestingScope(const NestingScope&) = delete;
  NestingScope& operator=(const NestingScope&) = delete;
};

// How many modules the calling thread is inside of.
std::size_t nesting_depth();

}  // namespace lockstep::nn

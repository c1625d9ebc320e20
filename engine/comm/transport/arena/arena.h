// The memory in which the ranks of one host meet. Ranks that are processes map it
// (shm/shared_segment.h); ranks that are threads have it on the heap (thread/thread_arena.h).
#pragma once

#include <cstddef>

namespace lockstep::comm::arena {

class Arena {
 public:
  virtual ~Arena() = default;

  // Where it begins: aligned to a cache line, zeros at first.
  virtual std::byte* data() const = 0;

  // A rank that can end without a word. Marks member `holder` as alive while this object lives in
  // this process. False: somebody else is it.
  virtual bool hold(int /*holder*/) { return true; }
  // Whether it is alive.
  virtual bool is_held(int /*holder*/) const { return true; }
};

}  // namespace lockstep::comm::arena

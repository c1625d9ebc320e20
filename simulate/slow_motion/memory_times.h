// Which device wrote a block of memory last, and when that would have been done on the machine that
// is acted out. What a kernel or a message reads is what it has to wait for; so nobody else, in
// particular no host thread that waits for another, need be known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "engine/runtime/steady_time.h"

namespace lockstep::slow_motion {

using runtime::Time;

struct Memory {
  const void* data = nullptr;
  std::size_t num_bytes = 0;
};

inline constexpr int kNoDevice = -1;

enum class Writer { kernel, collective };

struct Written {
  Time time{};  // 0: never, as far as is known
  int device = kNoDevice;
  Writer writer = Writer::kernel;
};

// Any thread may use it at any time.
class MemoryTimes {
 public:
  void write(const Memory& memory, const Written& written);
  // Of what was written last in any part of the memory.
  Written last_write(const Memory& memory) const;

 private:
  struct Block {
    std::uintptr_t end;
    Written written;
  };
  using Blocks = std::map<std::uintptr_t, Block>;  // by where they begin; disjoint

  // The first block that ends behind `begin`.
  Blocks::const_iterator first_behind(std::uintptr_t begin) const;

  mutable std::mutex mutex_;
  Blocks blocks_;
};

}  // namespace lockstep::slow_motion

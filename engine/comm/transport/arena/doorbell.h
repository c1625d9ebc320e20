// How a rank sleeps until another process writes something that it waits for.
//
// runtime::WaitWord between processes: the futex is found by the memory's identity, not by its
// address in one process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm::arena {

class Doorbell {
 public:
  std::uint32_t load() const { return rings_.load(std::memory_order_seq_cst); }

  // Wakes whoever sleeps here. Call it after writing what may be waited for: either the sleeper is
  // seen here, or the sleeper sees what was written, since both sides are sequentially consistent.
  void ring() {
    if (num_sleeping_.load(std::memory_order_seq_cst) != 0) wake();
  }

  // A caller that may sleep: announces it, looks once more, sleeps while nobody has rung.
  void begin_sleep() { num_sleeping_.fetch_add(1, std::memory_order_seq_cst); }
  void end_sleep() { num_sleeping_.fetch_sub(1, std::memory_order_seq_cst); }
  // Returns when the bell has rung since `seen` was loaded, or after the time given; perhaps early.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds at_most) const;

 private:
  void wake();

  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> num_sleeping_{0};
};

}  // namespace lockstep::comm::arena

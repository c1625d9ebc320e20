// Decides how often a generator of hostile input runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace lockstep::testing {

// Counts from 0: for LOCKSTEP_HOSTILE_SECONDS seconds if that is set, else LOCKSTEP_HOSTILE_COUNT
// or default_count times.
//   for (Rounds round(100); round.go_on(); round.next()) attack(round.seed());
class Rounds {
 public:
  explicit Rounds(std::uint64_t default_count) : count_(default_count) {
    if (const char* count = std::getenv("LOCKSTEP_HOSTILE_COUNT")) count_ = std::stoull(count);
    if (const char* seconds = std::getenv("LOCKSTEP_HOSTILE_SECONDS")) {
      count_ = ~std::uint64_t{0};
      end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(std::stod(seconds)));
    }
  }

  bool go_on() const { return seed_ < count_ && Clock::now() < end_; }
  void next() { ++seed_; }
  std::uint64_t seed() const { return seed_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t count_;
  std::uint64_t seed_ = 0;
  Clock::time_point end_ = Clock::time_point::max();
};

}  // namespace lockstep::testing

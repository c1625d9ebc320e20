// The seconds of an epoch, without those in which it was paused.
#pragma once

#include <chrono>

namespace lockstep::tools {

class EpochClock {
 public:
  void start() {
    paused_ = {};
    started_ = Clock::now();
  }
  // Runs work() while the clock stands.
  template <typename Work>
  void pause_for(const Work& work) {
    const Clock::time_point begin = Clock::now();
    work();
    paused_ += Clock::now() - begin;
  }
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - started_ - paused_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point started_;
  Clock::duration paused_{};
};

}  // namespace lockstep::tools

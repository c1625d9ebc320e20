// One direction of a rank's port to a modelled link: one message at a time goes through it.
#pragma once

#include <chrono>
#include <vector>

namespace lockstep::comm {

class Port {
 public:
  // Since any moment that all callers agree on.
  using Time = std::chrono::nanoseconds;

  // Takes the first `length` of time at or after `earliest` in which the port is free, and returns
  // its end. Messages need not be given in the order of their times.
  Time occupy(Time earliest, Time length);

 private:
  struct Interval {
    Time begin;
    Time end;
  };
  std::vector<Interval> busy_;  // disjoint, in the order of time; the last kMaxIntervals
  Time forgotten_until_ = Time::min();
};

}  // namespace lockstep::comm

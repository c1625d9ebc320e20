// One direction of a link that is modelled: one message at a time goes through it.
#pragma once

#include <vector>

#include "engine/act/modelled_time.h"

namespace lockstep::act {

class Port {
 public:
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

}  // namespace lockstep::act

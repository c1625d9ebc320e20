// --watch: what each device of a machine that is acted out does now, on the terminal, while it does
// it.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "simulate/slow_motion/machine.h"

namespace lockstep::tools {

// While one lives, draws the lanes on stderr some ten times a second, each time over the picture
// before; the last one stays. Without a terminal there, or unless `is_on`, it does nothing.
class LaneWatch {
 public:
  LaneWatch(const slow_motion::Machine& machine, bool is_on);
  ~LaneWatch();
  LaneWatch(const LaneWatch&) = delete;
  LaneWatch& operator=(const LaneWatch&) = delete;

 private:
  void draw();

  const slow_motion::Machine& machine_;
  std::size_t num_lines_ = 0;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// The picture: a line per device, what it does now and how busy it has been, and one for each of
// the links that have carried most.
std::vector<std::string> lane_lines(const slow_motion::Machine& machine);

}  // namespace lockstep::tools

// Times what all-reduces cost the ranks of a DDP step: the half of a calibration that needs
// several.
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "simulate/predict/measured_machine.h"

namespace lockstep::tools {

struct AllReduceTimes {
  predict::Curve curve;
  std::vector<double> spreads;  // of the waits, by size (report/step_statistics.h)
};

// Every rank calls it alike, with a device of its own. In each round a rank writes gradients and
// computes, as a backward pass does, launches an all-reduce, waits for it and reads the gradients,
// as an optimizer does. The median, by bytes, of that wait, which holds what waking threads up and
// waiting for a slower rank cost, and of what writing and reading take longer than once more: that
// is for the cache lines that the other ranks have touched.
AllReduceTimes measure_all_reduces(comm::Communicator& communicator, Device device, bool is_fast);

// The share of their speed that layers and an all-reduce keep while both are under way;
// all_reduces: the times of all-reduces by themselves.
predict::Interference measure_overlap(comm::Communicator& communicator, Device device,
                                      const predict::Curve& all_reduces);

// The standard deviation of the ranks' times for the same computation, as a share of the time: the
// one that makes the slowest of so many ranks as late as it was in the median round.
double measure_deviation(comm::Communicator& communicator, Device device);

}  // namespace lockstep::tools

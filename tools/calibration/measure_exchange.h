// What all-reduces cost the ranks of a DDP step: the half of a calibration that needs several.
#pragma once

#include "engine/comm/communicator.h"
#include "simulate/predict/measured_machine.h"
#include "tools/calibration/care.h"

namespace lockstep::tools {

// Every rank calls it alike, with a device of its own. In each round a rank writes gradients and
// computes, as a backward pass does, launches an all-reduce, waits for it and reads the gradients,
// as an optimizer does. The median, by bytes, of that wait, which holds what waking threads up and
// waiting for a slower rank cost, and of what writing and reading take longer than once more: that
// is for the cache lines that the other ranks have touched.
predict::Curve measure_all_reduces(comm::Communicator& communicator, Device device, Care care);

// What is left of the speed of layers and of an all-reduce that is under way beside them, which
// takes so long by itself.
predict::Interference measure_overlap(comm::Communicator& communicator, Device device,
                                      const predict::Curve& all_reduces);

// By how much the ranks' times for the same computation differ: the standard deviation, a share of
// the time, that makes the slowest of so many later than their mean by what it was in the median
// round.
double measure_deviation(comm::Communicator& communicator, Device device);

}  // namespace lockstep::tools

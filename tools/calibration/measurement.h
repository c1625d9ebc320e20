// The results of `lockstep calibrate`, as its parts measure them.
#pragma once

#include <cstddef>
#include <vector>

#include "simulate/predict/measured_machine.h"

namespace lockstep::tools {

struct Measurement {
  std::size_t num_devices = 1;
  bool is_fast = false;  // few sizes
  predict::MeasuredMachine machine;

  // How far repeats of the same work differ: their interquartile range as a share of the median,
  // one number per size.
  std::vector<double> layer_spreads;
  std::vector<double> copy_spreads;  // memory traffic and the rows of batches
  std::vector<double> all_reduce_spreads;
};

}  // namespace lockstep::tools

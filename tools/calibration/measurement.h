// The results of `lockstep calibrate`, to which its parts add.
#pragma once

#include <cstddef>
#include <vector>

#include "simulate/predict/measured_machine.h"

namespace lockstep::tools {

struct Measurement {
  std::size_t num_devices = 1;
  bool is_fast = false;  // few sizes
  predict::MeasuredMachine machine;

  // How much repeats of the same work differ: their interquartile range as a share of the median,
  // one number per size.
  std::vector<double> layer_spreads;
  std::vector<double> copy_spreads;  // memory traffic and the rows of batches
  std::vector<double> all_reduce_spreads;
};

}  // namespace lockstep::tools

// `lockstep calibrate` measures one CPU device, alone and with others at work, and all-reduces
// among several ranks, and writes what it measured as a topology file (docs/prediction.md).
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/comm/communicator.h"
#include "simulate/predict/measured_machine.h"
#include "simulate/predict/topology.h"

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

// --- one device (measure_device.cpp); REQUIRES: the threads of each device are set ---

// These time cpu:0.
void measure_layers(Measurement& measurement);  // forward, backward and weights_backward
void measure_batches(Measurement& measurement);
void measure_losses(Measurement& measurement);

// These time 1 ... num_devices devices that work at the same time.
void measure_traffic(Measurement& measurement);
void measure_layers_beside(Measurement& measurement);

// --- several ranks (measure_exchange.cpp) ---

struct AllReduceTimes {
  predict::Curve curve;
  std::vector<double> spreads;  // of the waits, by size (report/step_statistics.h)
};

// Every rank calls it alike, with a device of its own. In each round a rank writes gradients and
// computes like a backward pass, launches an all-reduce, waits for it, and reads the gradients like
// an optimizer. The times, by bytes, are the medians of that wait, which includes waking threads up
// and waiting for a slower rank, plus the extra time of writing and reading because other ranks
// have touched the cache lines.
AllReduceTimes measure_all_reduces(comm::Communicator& communicator, Device device, bool is_fast);

// The share of their speed that layers and an all-reduce keep while both run; all_reduces: the
// times of all-reduces alone.
predict::Interference measure_overlap(comm::Communicator& communicator, Device device,
                                      const predict::Curve& all_reduces);

// The standard deviation of the ranks' times for the same computation, as a share of the time. It
// is the deviation that makes the slowest of so many ranks as late as it was in the median round.
double measure_deviation(comm::Communicator& communicator, Device device);

// --- the file (calibrated_file.cpp) ---

// The topology of num_devices devices of this host's CPU that share its memory, with all figures
// derived from the measurements. Its links are fitted so that the engine's own all-reduce by
// threads is charged what it took, at a small and at a large size.
predict::Topology calibrated_topology(const predict::MeasuredMachine& measured,
                                      std::size_t num_devices);

// The JSON that parse_topology() reads.
nlohmann::ordered_json topology_json(const predict::Topology& topology);

// A curve as JSON, for the file and between ranks.
nlohmann::ordered_json curve_json(const predict::Curve& curve);

}  // namespace lockstep::tools

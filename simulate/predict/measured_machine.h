// The times of a machine that was measured rather than looked up (lockstep calibrate): of layers,
// of memory traffic and of all-reduces at chosen sizes. Between two sizes a time is interpolated
// linearly, because all of these take about a fixed time plus one in proportion to the size; below
// the first size it is the first time, and beyond the last it grows in proportion.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "simulate/predict/lanes.h"

namespace lockstep {
class JsonFields;
}

namespace lockstep::predict {

// The place of a value between the points of an axis: at `index`, and by `share` at the next point.
struct AxisPlace {
  std::size_t index = 0;
  double share = 0;
  double beyond = 1;  // how many times the last point it is, if it is beyond it
};
// REQUIRES: points are positive and ascending, and there is at least one.
AxisPlace place_on(const std::vector<double>& points, double value);

// Times by size.
struct Curve {
  std::vector<double> sizes;
  std::vector<double> seconds;

  double at(double size) const;
};

// The times of a Linear with its activation at every combination of rows, inputs and outputs; the
// outputs of one row and input are consecutive.
struct LayerGrid {
  std::array<std::vector<double>, 3> axes;  // rows, inputs, outputs
  std::vector<double> seconds;

  double at(double rows, double inputs, double outputs) const;
};

enum class RankKind { threads, processes };

const char* to_string(RankKind ranks);
// The kind of that name; nullopt for another name.
std::optional<RankKind> parse_rank_kind(std::string_view name);

// The times by bytes of float32, launched during the backward pass as in DDP, with nothing after
// it.
struct MeasuredAllReduce {
  RankKind ranks = RankKind::threads;
  std::size_t num_devices = 2;
  Curve curve;
  // The measured time divided by the machine's links' charge for the engine's own plan, at the
  // curve's sizes and between them. Other links' charges are multiplied by it.
  Curve over_plan = {};
};

struct MeasuredMachine {
  std::size_t threads_per_device = 1;
  LayerGrid forward;
  LayerGrid backward;          // the gradients of weights and input
  LayerGrid weights_backward;  // of the weights alone: a first layer's
  std::vector<Curve> traffic;  // of a kernel, by the bytes that it reads and writes, while
                               // 1, 2, ... devices are at it
  Curve batch;                 // of the loop around a step, with its rows out of a data set, by
                               // their bytes
  Curve loss_forward;          // of cross-entropy, by the logits' bytes
  Curve loss_backward;
  // How many times as long layers take while 1, 2, ... devices work.
  std::vector<double> layers_beside;
  std::vector<MeasuredAllReduce> all_reduces;
  Interference overlap;  // between computation and an all-reduce of the same device
  double deviation = 0;  // of the devices' times for the same work, as a share
};

struct Topology;

// Reads the object "measured" of a topology's file (docs/prediction.md), for a machine whose
// devices and links are known. Throws Error{Io} that names file, line and field for sizes that do
// not ascend, missing times, and devices that the machine does not have.
std::shared_ptr<const MeasuredMachine> read_measured(const JsonFields& fields,
                                                     const Topology& machine);

}  // namespace lockstep::predict

// Measures one training step, layer by layer: the part of the run file that the predictor starts
// from.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/optim/optimizer.h"
#include "tools/report/run_reader.h"
#include "tools/report/step_statistics.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// Times of the same work, repeated nine times, or until they add up to a tenth of a second, but at
// least three times.
class Times {
 public:
  template <typename Run>
  void add(const Run& run) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    run();
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total_ += seconds_.back();
  }
  bool are_enough() const {
    constexpr std::size_t kRuns = 9;
    constexpr std::size_t kFewestRuns = 3;
    constexpr double kLongest = 0.1;
    return seconds_.size() >= kRuns || (seconds_.size() >= kFewestRuns && total_ >= kLongest);
  }
  double median_seconds() const { return median(seconds_); }
  double spread() const { return tools::spread(seconds_); }

 private:
  std::vector<double> seconds_;
  double total_ = 0;
};

// Times run() until there are enough; before(), which precedes each run, is not timed.
template <typename Before, typename Run>
Times time_repeatedly(const Before& before, const Run& run) {
  Times times;
  while (!times.are_enough()) {
    before();
    times.add(run);
  }
  return times;
}

template <typename Run>
Times time_repeatedly(const Run& run) {
  return time_repeatedly([] {}, run);
}

// An optimizer that does an update's work and changes no parameter.
optim::Sgd still_optimizer(const std::vector<Variable>& parameters);

// Measures a step on one device with all its threads, layer by layer (layer_recorder.h).
FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds);

// The workload as the run file holds it.
nlohmann::ordered_json workload_json(const FileWorkload& step);

}  // namespace lockstep::tools

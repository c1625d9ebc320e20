// What a run found out: collected from the loop, the model, the devices and the recording.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/nn/state_dict.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/recorder.h"
#include "tools/report/step_statistics.h"
#include "tools/training/loop.h"

namespace lockstep::tools {

// What a result's times are times of, where they were acted out (slow_motion.h).
struct ActedOut {
  std::string topology;
  std::string device;  // what each of its devices is
  double factor = 1;   // how many times slower it was
  // The median over steps of the share for which some device was late: the cores could not follow.
  double put_off = 0;
};

// Times are wall times of rank 0, or, acted out, those divided by the factor.
struct TrainingResult {
  nn::StateDict weights;
  std::vector<double> epoch_seconds;
  std::optional<trace::StepBreakdown> breakdown;    // of rank 0's median step
  StepStatistics step_statistics;                   // over the steps of all ranks
  std::vector<std::optional<double>> comm_overlap;  // per device; see step_statistics.h
  std::vector<double> busy_fraction;                // per device: share of the steps' time
  std::vector<std::size_t> peak_bytes;              // per device
  std::size_t comm_bytes_per_step = 0;  // sent by a device, mean over steps, largest device
  std::size_t num_steps = 0;
  double final_loss = 0;  // mean over the last epoch's rows
  ThinnedLosses losses;   // of every step
  // Fraction of the test rows, after each epoch; of an acted run after the last one alone. Empty
  // where there are none.
  std::vector<double> epoch_accuracy;
  std::optional<RunFindings> findings;  // where checks were asked for
  std::optional<ActedOut> acted;

  double test_accuracy() const { return epoch_accuracy.empty() ? 0 : epoch_accuracy.back(); }
};

}  // namespace lockstep::tools

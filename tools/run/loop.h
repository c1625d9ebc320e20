// The training loop of one thread, for whatever strategy it trains by.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/nn/state_dict.h"
#include "engine/trace/breakdown.h"
#include "tools/run/findings.h"
#include "tools/run/losses.h"
#include "tools/run/memory_watch.h"
#include "tools/run/model.h"
#include "tools/run/step_statistics.h"

namespace lockstep::tools {

class Stop;  // stop.h

// One step's report.
struct LoggedStep {
  std::size_t step = 0;
  double loss = 0;  // the mean over all ranks' rows
  double learning_rate = 0;
  double grad_norm = 0;          // before clipping
  double seconds = 0;            // the mean over the steps since the line before
  double labels_per_second = 0;  // a text's tokens
};

struct TrainingObserver {
  // After every epoch, on rank 0: epoch from 0, its seconds and mean loss.
  std::function<void(std::size_t epoch, double seconds, double loss)> on_epoch;
  // After every step, on rank 0, in time that counts: number of steps done.
  std::function<void(std::size_t num_done)> on_step;
  // Once for every step, in order, on rank 0, when its loss has arrived: the mean over rank 0's
  // rows.
  std::function<void(std::size_t step, double loss)> on_loss;
  // Called on rank 0 every lines_every steps and after the last (0: never). Every rank passes the
  // same value.
  std::function<void(const LoggedStep& line)> on_line;
  std::size_t lines_every = 0;
  std::string log_path;  // a JSON line per step; empty: none
  // Compares the run with one device's while it goes on (tools/check/rank_checks.h); neither
  // times nor breakdown include that.
  Checks checks = Checks::off;
  MemoryWatch* memory = nullptr;  // of the run's devices; nullptr: no one watches
  Stop* stop = nullptr;           // what may end the run early; nullptr: nothing does
};

// The machine that a result's times belong to, if it was simulated (slow_motion.h).
struct Simulation {
  std::string topology;
  std::string device;  // the topology's devices
  double factor = 1;   // how many times slower it was
  // Fraction of a step for which the real cores lagged behind the modelled machine (median).
  double lag = 0;
};

// The result of a run. Times are wall times of rank 0, divided by the factor if it was simulated.
struct TrainingResult {
  // From the loop:
  nn::StateDict weights;
  std::size_t num_steps = 0;
  int stopped_by = 0;                 // the signal that ended it early; 0: all steps are done
  std::vector<double> epoch_seconds;  // whole epochs only
  std::optional<double> unfinished_epoch_seconds;  // the steps after them
  double final_loss = 0;  // mean over the last epoch's rows, as far as it came
  ThinnedLosses losses;   // every step's, over all ranks' rows
  // Fraction of the test rows, after each epoch; of a simulated run after the last one alone. Empty
  // where there are none.
  std::vector<double> epoch_accuracy;
  // For a text, instead of accuracy: the mean loss over the validation tokens.
  std::vector<double> epoch_validation_loss;
  std::optional<RunFindings> findings;  // where checks were asked for

  // From the devices and the recording (ranks.h):
  std::optional<trace::StepBreakdown> breakdown;    // rank 0's median step
  StepStatistics step_statistics;                   // over the steps of all ranks
  std::vector<std::optional<double>> comm_overlap;  // per device; see step_statistics.h
  std::optional<double> bubble;                     // a pipeline's; see pipeline.h
  std::vector<double> busy_fraction;                // per device: share of the steps' time
  // Per device: the most that its tensors held in a step. Beside the steps, too, if any device held
  // more there.
  std::vector<std::size_t> peak_bytes;
  std::vector<std::size_t> peak_bytes_beside_steps;
  std::size_t comm_bytes_per_step = 0;  // sent by a device, mean over steps, largest device
  std::optional<Simulation> simulated;

  double test_accuracy() const { return epoch_accuracy.empty() ? 0 : epoch_accuracy.back(); }
};

// Trains in place, and returns the loop's part of the result; on rank 0 with a copy of
// the weights. Only rank 0 logs and calls the observer.
// Throws: Error{Numeric} naming step and rank when the loss is not finite, or the parameter that is
// not at the end; what the engine throws.
TrainingResult run_loop(const TrainingTask& task, const Strategies& strategies,
                        const TrainingObserver& observer);

}  // namespace lockstep::tools

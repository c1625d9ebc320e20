// The checks inside a run: do all ranks together still make the steps that one device would?
//
// Float rounding makes two correct runs drift apart, the faster the more often a sum falls on the
// other side of ReLU's kink; after thousands of steps their weights say nothing about the engine.
// So the checks compare like with like, on the state that the run has reached. In every step:
//
//   rows         every rank's batch is its part of the global batch, and the parts are the whole
//   schedule     learning rate and number of steps are those of the step
//   gradients    are cleared before backward adds to them, and are the mean of all ranks' own, as
//                far as a few elements tell (gradient_parts.h)
//   update       a few elements of every parameter, and what the optimizer keeps for them, become
//                what the optimizer's formula makes of them and of the run's gradients, up to a few
//                roundings, and stay so until the next step begins
//   loss         the loss that the run reports is the mean over all ranks' rows
//
// Some steps (the first, the one after kFirstSteps, one in a hundred drawn by the seed, every
// epoch's last and the run's last) are checked as a whole, from a copy of the state before the
// step:
//
//   replicas     every rank's weights, gradients and optimizer state equal rank 0's bit for bit,
//                before the step and after it (buffers only before the first: later each forward
//                pass takes rank 0's)
//   gradients    and loss equal one device's on the same weights and rows (reference_step.h says
//                how nearly); rank 0 computes them from the data set's own rows
//   update       as above, but for all elements
//   differences  in one device's first step, the gradients' slopes are those of the loss itself
//                (differences.h)
//
// So a wrong update can be told from rounding: it is judged element by element on the run's own
// gradients, and those are judged by the tolerance of a sum. The order of the rows, the schedule
// and the optimizer's formula are not the engine's (rules.h). With --shard a rank judges its own
// pieces in every step, and in some of them whole tensors, made of all ranks' pieces. A checked
// step trains like any other, and the checks change nothing in it. On a GPU, where reading stops
// the device, and in slow motion, rows and elements are only looked at in the steps that are
// checked as a whole.
//
// The parts that ranks hold, such as the stages of a pipeline, are put together on rank 0, and a
// parameter that two of them hold must be the same on both.
//
// All ranks call every function at the same points and get the same results. Under --sampler torch
// the ranks train on other numbers than one device, so rows, loss and gradients are not compared.
// Once the loss has exploded, nothing is judged any more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/data/data_loader.h"
#include "tools/check/gradient_parts.h"
#include "tools/check/one_device.h"
#include "tools/check/planned_rows.h"
#include "tools/check/report_judge.h"
#include "tools/run/step_checks.h"

namespace lockstep::tools {

class RankChecks final : public StepChecks {
 public:
  // REQUIRES: all of these outlive the checks.
  RankChecks(const TrainingTask& task, const Strategies& strategies, const Optimizers& optimizers);

  bool is_due(std::size_t step) const override { return due_.contains(step); }
  bool is_read(std::size_t step) const override {
    return is_cheap_ || is_due(step) || (step > 0 && is_due(step - 1));
  }
  void before_step(std::size_t step) override;
  void after_clearing(std::size_t step) override;
  void take_loss(std::size_t local, const StepLoss& loss) override;
  void after_step(std::size_t step, const std::vector<data::Batch>& batches) override;
  void after_epoch(std::size_t last_step, double mean_loss) override;
  const RunFindings& findings() const override { return findings_; }
  std::optional<Finding> wrong_resumption(const std::vector<data::Batch>& batches) override;

 private:
  class Window;
  // The state of a rank: all elements, or a few of each tensor.
  enum class Elements { few, all };
  struct Local : StepTensors {
    KeptTensors left;  // a few elements, as the last step left them; empty if no one looked
    std::unique_ptr<GradientParts> parts;  // nullptr: not looked at
    RankReport report;                     // as far as it is known between the exchanges
  };

  // Reads a tensor of each parameter; all elements come from all ranks' pieces. suffix: of the
  // names that they are kept by.
  KeptTensors read(std::size_t local, std::size_t step, Elements elements,
                   const TensorOf& tensor_of, const std::string& suffix);
  // Each parameter, and what its optimizer keeps for it, by name.
  KeptTensors state_of(std::size_t local, std::size_t step, Elements elements);
  KeptTensors gradients_of(std::size_t local, std::size_t step, Elements elements);
  // Batch norm's running ones, on rank 0, whose are the run's.
  KeptTensors statistics(std::size_t local) const;
  // The whole model's on rank 0. All ranks call it.
  KeptTensors weights() const;
  void keep_weights(std::size_t num_steps);

  // Each of these adds a finding to its rank, if the rank has none yet.
  void find_change(std::size_t local, std::size_t step, const KeptTensors& found,
                   const KeptTensors& expected);
  void look_at_rows(std::size_t local, std::size_t step, const data::Batch& batch);
  void look_at_schedule(std::size_t local, std::size_t step);
  void look_at_update(std::size_t local, std::size_t step);
  void look_at_differences(std::size_t local);
  void find(std::size_t local, const char* check, std::size_t step, const std::string& parameter,
            std::string what);

  RankReport report_of(std::size_t local, std::size_t step);
  // On rank 0, after the last step: the whole state, and what the test rows give with it.
  void keep_last_state(KeptTensors state);
  // Every rank gets all reports. With a communicator the thread drives one rank.
  std::vector<RankReport> exchange(std::vector<RankReport> mine) const;

  const TrainingTask& task_;
  const Strategies& strategies_;
  parallel::Strategy& first_;
  const Optimizers& optimizers_;
  const std::vector<Device> devices_;
  const std::set<std::size_t> due_;
  const bool is_exact_;
  const bool is_cheap_;                          // true if reading tensors in every step is cheap
  std::map<std::string, double> weight_decays_;  // by whole parameter
  std::vector<std::string> stepped_;  // the optimizer's parameters, or those of its pieces
  bool has_stepped_ = false;          // so optimizers keep something
  std::vector<Local> locals_;         // by local rank
  KeptTensors initial_;               // rank 0's weights
  PlannedRows rows_;
  OneDevice one_device_;
  RunFindings findings_;
  ReportJudge judge_;
};

}  // namespace lockstep::tools

// One step of training, by the strategies of one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tools/run/model.h"

namespace lockstep::tools {

class StepChecks;  // step_checks.h

// The norm of the gradients is computed where they are clipped, or if someone asks for it.
enum class AskedNorm { no, yes };

class TrainingStep {
 public:
  struct Output {
    std::vector<Tensor> losses;  // summed, by local rank
    Tensor grad_norm;            // before clipping; undefined if no one asks for it
  };

  TrainingStep(const TrainingTask& task, const Strategies& strategies);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  // These look at each step from within. REQUIRES: they outlive the steps.
  void set_checks(StepChecks* checks) { checks_ = checks; }

  void start_epoch(std::size_t epoch);
  // Nothing at the end of the epoch, which comes for all ranks at once. Where a step is one graph,
  // `norm` is the same in each.
  std::optional<Output> run(std::size_t step, AskedNorm norm);

  double learning_rate(std::size_t step) const;
  runtime::Stream& stream() const;  // whose times stand for the step
  // The optimizers, by local rank.
  const std::vector<std::unique_ptr<optim::Optimizer>>& optimizers() const { return optimizers_; }
  const std::vector<data::Batch>& batches() const { return batches_; }  // the last step's

 private:
  struct CapturedSteps;

  bool take_batches();
  Output update_weights(std::size_t step, AskedNorm norm);
  Tensor clip_or_measure_norm() const;
  Output launch(std::size_t step, AskedNorm norm);

  const TrainingTask& task_;
  const Strategies& strategies_;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;
  std::vector<std::unique_ptr<data::DataLoader>> loaders_;
  std::vector<data::Batch> batches_;
  std::unique_ptr<CapturedSteps> captured_;  // nullptr: operation by operation
  StepChecks* checks_ = nullptr;
};

}  // namespace lockstep::tools

// The judge of a run while it goes on, as the loop sees it. It stands on the floor above:
// tools/check/rank_checks.h.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "engine/data/data_loader.h"
#include "engine/optim/optimizer.h"
#include "tools/run/findings.h"
#include "tools/run/model.h"

namespace lockstep::tools {

class StepChecks {
 public:
  virtual ~StepChecks() = default;

  // True if the step is judged as a whole; take_loss() must then come before after_step().
  virtual bool is_due(std::size_t step) const = 0;
  // True if tensors are read before or after this step, for which the devices must be idle.
  virtual bool is_read(std::size_t step) const = 0;

  virtual void before_step(std::size_t step) = 0;
  virtual void after_clearing(std::size_t step) = 0;
  virtual void take_loss(std::size_t local, const StepLoss& loss) = 0;
  // batches: by local rank.
  virtual void after_step(std::size_t step, const std::vector<data::Batch>& batches) = 0;
  // Checks the run's mean loss of an epoch whose last step this was.
  virtual void after_epoch(std::size_t last_step, double mean_loss) = 0;

  virtual const RunFindings& findings() const = 0;

  // After the first step of a resumed run: what shows that it goes on elsewhere than where the
  // checkpoint was made. Looks at this thread's ranks: rows, learning rate and number of steps.
  // REQUIRES: new checks, which have seen no step.
  virtual std::optional<Finding> wrong_resumption(const std::vector<data::Batch>& batches) = 0;
};

using Optimizers = std::vector<std::unique_ptr<optim::Optimizer>>;  // by local rank

// Makes the checks of a run; tools/check defines it. REQUIRES: all of these outlive the checks.
std::unique_ptr<StepChecks> make_step_checks(const TrainingTask& task, const Strategies& strategies,
                                             const Optimizers& optimizers);

}  // namespace lockstep::tools

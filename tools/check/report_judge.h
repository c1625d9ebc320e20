// Judges the reports of all ranks on their steps: the replicas, the gradients, the losses. Every
// rank gets all reports, so all of them find the same. What is checked, and when, stands in
// rank_checks.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/check/gradient_parts.h"
#include "tools/run/losses.h"
#include "tools/run/model.h"

namespace lockstep::tools {

// The tensors of a rank's step, by name.
struct StepTensors {
  KeptTensors before;     // the state before the step
  KeptTensors gradients;  // in the step
  KeptTensors after;
  KeptTensors statistics_before, statistics_after;  // batch norm's running ones; of rank 0 alone
};

// How far a step is from one device's on the same state and rows.
struct FromOneDevice {
  std::vector<Finding> failure;  // the worst, if any
  GradientCheck check;
  double loss = 0;  // one device's; NaN: its gradients overflow
  double loss_limit = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FromOneDevice, failure, check, loss, loss_limit)

// A rank's message to the others.
struct RankReport {
  std::vector<Finding> findings;                        // the first one, if any
  std::vector<StepLoss> losses;                         // one for each step since the last exchange
  StepLoss epoch_loss;                                  // this epoch's
  std::vector<StepParts> parts;                         // for the same steps
  std::vector<std::uint64_t> before, gradients, after;  // digests of the tensors
  FromOneDevice from_one_device;                        // computed by rank 0 alone
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, findings, before, gradients, after, losses,
                                   epoch_loss, parts, from_one_device)

class ReportJudge {
 public:
  // Writes to the findings. REQUIRES: all of these outlive it.
  ReportJudge(const TrainingTask& task, const parallel::Strategy& strategy, RunFindings& findings);

  // Judges the steps up to this one; the earliest finding is the run's failure. mine: the names of
  // the digested tensors.
  void judge(std::size_t step, const std::vector<RankReport>& reports, const StepTensors& mine);

  // Judges the mean loss that the run reports of an epoch whose last step this was.
  void judge_epoch(std::size_t last_step, double mean_loss);

  // The run's losses so far.
  ThinnedLosses losses() const { return curve_.means(curve_.sums_and_rows()); }

 private:
  void judge_gradient(std::size_t step, const FromOneDevice& compared, std::vector<Finding>& found);
  void judge_parts_of_steps(std::size_t step, const std::vector<RankReport>& reports,
                            std::vector<Finding>& found);
  void judge_losses(std::size_t step, const std::vector<RankReport>& reports,
                    std::vector<Finding>& found);
  void explode(std::size_t step, const std::string& why);

  const TrainingTask& task_;
  const parallel::Strategy& strategy_;
  RunFindings& findings_;
  const bool is_exact_;
  StepLoss epoch_loss_;  // the sum over all ranks, up to the last judged step
  LossCurve curve_;      // the same
  LossWatch watch_;
  std::optional<std::size_t> explosion_;  // the step
};

}  // namespace lockstep::tools

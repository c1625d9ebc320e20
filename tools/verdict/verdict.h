// Whether a row of `compare` trained as one device does, and what is said about it.
//
// What decides: the checks inside the run (rank_checks.h), and the weights after the first steps,
// which must be those of the single-device row within 1e-5 (float32) or 1e-12 (float64), times the
// largest weight where that is more than 1. If they are not, rounding may still be the reason: with
// a large learning rate, twenty steps are enough to amplify it. So both rows' first steps are
// repeated in the other precision. A difference made by rounding shrinks with the rounding error,
// by 5e8 from float32 to float64; one made by a wrong engine stays. Less than 1e5 counts as stays.
// In bitwise mode the limit is 0, for the final weights too.
//
// What does not decide: how far the final weights have drifted apart.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/training/results.h"

namespace lockstep::tools {

struct Verdict {
  double first_steps_max_abs_diff = 0;
  double first_steps_tolerance = 0;
  std::vector<GradientCheck> gradient_checks;
  double gradient_limit = 0;
  std::optional<Finding> failure;

  bool equal() const { return !failure.has_value(); }
  double max_gradient_error() const;
};

// The largest difference between this row's weights and one device's after so many steps, when both
// train in another dtype.
using RepeatInDtype = std::function<double(DType dtype, std::size_t num_steps)>;

// Nothing where there is nothing to judge: under --sampler torch, while the replicas are equal.
// REQUIRES: both runs were made with Checks::on.
std::optional<Verdict> judge(const TrainingTask& task, const TrainingResult& single,
                             const TrainingResult& row, const RepeatInDtype& repeat);

// What `compare` says below its table when every row is right. drift: the largest difference of
// final weights.
std::vector<std::string> verdict_lines(const TrainingTask& task,
                                       const std::vector<Verdict>& verdicts, double drift);

// What the drifts of the rows mean, each in float32 and in float64.
std::string drift_sentence(const std::vector<std::pair<double, double>>& drifts);

}  // namespace lockstep::tools

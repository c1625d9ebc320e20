// Whether a row of `compare` trained as one device does, and what is said about it.
//
// What decides: the checks inside the run (rank_checks.h); the weights after the first steps, which
// must be those of the single-device row within 1e-5 (float32) or 1e-12 (float64) of the way that
// they have gone, and a few roundings of their own size; and the final weights, which may drift by
// 1e-3 of the way (at most 1e-3). Where they are further apart, rounding may still be the reason:
// training amplifies it. So both rows are repeated in the other precision. A difference made by
// rounding shrinks with the rounding error, by 5e8 from float32 to float64; one made by a wrong
// engine stays. Less than 1e5 counts as stays, unless one device, started one bit off, ends as far
// from itself in float64: then this training amplifies any rounding, and cannot be judged. Neither
// can one whose loss explodes. With batch norm, whose statistics are those of each device's rows,
// as in PyTorch, weights are not one device's, and only the checks inside the run decide. In
// bitwise mode the limit is 0, for the final weights too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/training/loop.h"

namespace lockstep::tools {

// By how much a difference between weights shrinks in float64, at least, if rounding made it.
inline constexpr double kShrinksByRounding = 1e5;

struct Verdict {
  double first_steps_max_abs_diff = 0;
  double first_steps_tolerance = 0;
  std::vector<GradientCheck> gradient_checks;
  double gradient_limit = 0;
  // How far the weights of the first steps, and the final ones, are from one device's in the other
  // precision, where both rows were repeated in it.
  std::optional<double> repeated_first_steps;
  std::optional<double> repeated_drift;
  // Batch norm takes each device's own rows, so that weights are not one device's.
  bool has_own_statistics = false;
  std::optional<Finding> failure;
  std::string unjudged;  // why the row cannot be judged; or empty

  bool equal() const { return !failure && unjudged.empty(); }
  double max_gradient_error() const;
};

// Differences between final weights that take further runs, of so many steps.
struct Repeats {
  // This row's weights against one device's, when both train in another dtype.
  std::function<double(DType dtype, std::size_t num_steps)> row;
  // One device's against its own from initial weights that are off in the last bit, in float64.
  std::function<double(std::size_t num_steps)> control;
};

// Nothing where there is nothing to judge: under --sampler torch, while the replicas are equal.
// REQUIRES: both runs were made with Checks::on.
std::optional<Verdict> judge(const TrainingTask& task, const TrainingResult& single,
                             const TrainingResult& row, const Repeats& repeats);

// What `compare` says below its table when every row is right. drift: the largest difference of
// final weights.
std::vector<std::string> verdict_lines(const TrainingTask& task,
                                       const std::vector<Verdict>& verdicts, double drift);

}  // namespace lockstep::tools

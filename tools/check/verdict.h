// Judges if a row of `compare` trained as one device does, and words the result.
//
// Three things decide: the checks inside the run (rank_checks.h); the weights after the first
// steps, which must equal the single-device row's within 1e-5 (float32) or 1e-12 (float64) of the
// distance that they have moved, and a few roundings of their own size; and the final weights,
// which may drift by 1e-3 of the distance (at most 1e-3).
//
// If they are further apart, rounding may still be the reason, because training amplifies it. So
// both rows are repeated in the other precision. A difference made by rounding shrinks with the
// rounding error, by 5e8 from float32 to float64; one made by a wrong engine stays. Shrinking by
// less than 1e5 counts as staying, unless one device, started one bit off, ends as far from itself
// in float64: then this training amplifies any rounding, weights say nothing, and the checks inside
// the run decide. The same holds if the loss of both explodes.
//
// If batch norm takes its statistics from each device's rows, as in PyTorch, the one device
// takes the batch in the row's shares (TrainingTask::num_shares). Running statistics may be further
// apart than weights by as much as they are larger. In bitwise mode the limit is 0, for the final
// weights too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/run/loop.h"

namespace lockstep::tools {

// A difference between weights that rounding made shrinks at least by this factor in float64.
inline constexpr double kShrinksByRounding = 1e5;

struct Verdict {
  double first_steps_max_abs_diff = 0;
  double first_steps_tolerance = 0;
  std::vector<GradientCheck> gradient_checks;
  double gradient_limit = 0;
  double drift = 0;  // the largest difference of final weights
  // How far the weights of the first steps, and the final ones, are from one device's in the other
  // precision; set if both rows were repeated in it.
  std::optional<double> repeated_first_steps;
  std::optional<double> repeated_drift;
  // True if batch norm takes each device's own rows, so one device takes the batch in its shares.
  bool has_own_statistics = false;
  std::optional<Finding> failure;
  std::string incomparable;  // why only the steps are compared, not the weights; or empty

  bool equal() const { return !failure; }
  bool is_comparable() const { return equal() && incomparable.empty(); }
  double max_gradient_error() const;
};

// Distances for which rows must run again, for so many steps.
struct Repeats {
  // This row against one device, when both train in another dtype.
  std::function<StateDistance(DType dtype, std::size_t num_steps)> row;
  // One device against itself from initial weights that are off in the last bit of that dtype.
  std::function<StateDistance(DType dtype, std::size_t num_steps)> control;
};

// Empty if there is nothing to judge: under --sampler torch, while the replicas are equal.
// REQUIRES: both runs were made with Checks::on.
std::optional<Verdict> judge(const TrainingTask& task, const TrainingResult& single,
                             const TrainingResult& row, const Repeats& repeats);

// The lines that `compare` prints below its table when every row is right.
std::vector<std::string> verdict_lines(const TrainingTask& task,
                                       const std::vector<Verdict>& verdicts);

}  // namespace lockstep::tools

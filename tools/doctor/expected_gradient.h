// The gradient that a step of several ranks should have used, computed from sketches of each rank's
// backward passes.
//
// If the loss of rank r is a mean over n_r rows times s_r, its gradient is G_r = s_r / n_r * S_r,
// where S_r sums the gradients of its rows (for a sum over rows: G_r = s_r * S_r). One device with
// all N rows would have used M = (1/N) * sum of S_r.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tools/doctor/records.h"

namespace lockstep::doctor {

// By parameter, then by element of the sketch.
using Values = std::vector<double>;

struct RankGradient {
  Values used;         // by the optimizer
  Values own;          // G: from its backward passes, all parameters in a row
  Values sum_of_rows;  // S
  std::size_t num_rows = 0;
  double upstream = 1;  // s of its last loss
  bool is_mean = true;
  double weight_of_row = 0;  // s / n of its last loss
};

struct GlobalGradient {
  std::vector<RankGradient> ranks;
  Values mean;               // M
  Values mean_of_ranks;      // of G
  std::vector<double> size;  // size of each parameter's values; tolerances are relative to it
  std::size_t num_rows = 0;  // N

  // True if the two differ only by rounding.
  bool is_close(const Values& a, const Values& b) const;
  // The factor f with a = f * b, if there is one.
  std::optional<double> factor(const Values& a, const Values& b) const;
};

// Empty if the records do not say enough: a loss of another kind, gradients removed or clipped,
// numbers that are not finite.
std::optional<GlobalGradient> global_gradient(const Training& training, std::size_t step);

}  // namespace lockstep::doctor

// The gradient that a step of several ranks should have used, from sketches of what each rank's
// backward passes made.
//
// With the loss of rank r a mean over n_r rows times s_r, its gradient is G_r = s_r / n_r * S_r,
// where S_r sums the gradients of its rows (a sum over rows: G_r = s_r * S_r). One device with all
// N rows would have used M = (1/N) * sum of S_r.
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
  Values own;          // G: what its backward passes made, all parameters behind each other
  Values sum_of_rows;  // S
  std::size_t num_rows = 0;
  double upstream = 1;  // s of its last loss
  bool is_mean = true;
};

struct GlobalGradient {
  std::vector<RankGradient> ranks;
  Values mean;               // M
  std::vector<double> size;  // of the values of each parameter, which tolerances are relative to
  std::size_t num_rows = 0;  // N

  // Whether two are alike but for rounding.
  bool is_close(const Values& a, const Values& b) const;
  // The factor f with a = f * b, where there is one.
  std::optional<double> factor(const Values& a, const Values& b) const;
  // The weights w_r with `used` = sum of w_r * S_r, where there are some and only these.
  std::optional<std::vector<double>> weights_of_rows(const Values& used) const;
};

// Nothing where the records do not say it all: a loss of another kind, gradients taken away or
// clipped, numbers that are not finite.
std::optional<GlobalGradient> global_gradient(const Training& training, std::size_t step);

}  // namespace lockstep::doctor

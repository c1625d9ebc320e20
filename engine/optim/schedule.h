// The learning rate as a function of the step: pure, so a run that resumes needs only its step.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::optim {

// base * gamma^(step / step_size), whole division. Throws Error{Usage} for a step_size of 0.
// Source: PyTorch StepLR.
double step_learning_rate(double base, std::size_t step, std::size_t step_size, double gamma);

// From base down to minimum along half a cosine, and minimum from num_steps on.
// Source: PyTorch CosineAnnealingLR with T_max = num_steps.
double cosine_learning_rate(double base, std::size_t step, std::size_t num_steps, double minimum);

// (step + 1) / num_steps below num_steps, then 1. Source: PyTorch LinearLR(start_factor=1/n,
// total_iters=n-1).
double warmup_factor(std::size_t step, std::size_t num_steps);

// A linear warm-up over the first warmup_steps, then one of the above, counted from its own start.
struct Schedule {
  enum class Kind { constant, step, cosine } kind = Kind::constant;
  std::size_t warmup_steps = 0;
  std::size_t step_size = 1;  // step: steps between two reductions
  double gamma = 0.1;         // step: factor of each reduction
  std::size_t num_steps = 1;  // cosine: of the whole run, warm-up included
  double last = 0;            // cosine: the last rate as a part of the first

  // The rate of a step, counted from 0.
  double learning_rate(double base, std::size_t step) const;

 private:
  double rate_of(double base, std::size_t step) const;
};

// "constant", "step:SIZE[:GAMMA]" or "cosine[:LAST]" (over num_steps).
// Throws Error{Usage} that says what is allowed.
Schedule parse_schedule(std::string_view text, std::size_t num_steps, std::size_t warmup_steps);

}  // namespace lockstep::optim

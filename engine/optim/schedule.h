// The learning rate as a function of the step: pure, so a run that resumes needs only its step.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::optim {

// The learning rate of a run. Sources: PyTorch's StepLR, CosineAnnealingLR with T_max = num_steps,
// and LinearLR(start_factor = 1 / warmup_steps, total_iters = warmup_steps - 1) before them; they
// begin when the warm-up is over.
//   step:    base * gamma^(step / step_size), whole division
//   cosine:  from base down to last * base along half a cosine, and that from the end on
//   warm-up: base * (step + 1) / warmup_steps
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

// Says, once, that a loss exploded.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::tools {

// Looks at the losses of one run after another. A loss has exploded when it is more than 10 times
// both the run's first and ln(classes), what guessing costs: the first alone may be small, as of
// weights that were trained before, and ln(classes) may be less than bad first weights cost.
class LossWatch {
 public:
  explicit LossWatch(std::size_t num_classes);

  // A step's mean loss; step 0 begins a run. Returns the warning for the first explosion of all.
  std::optional<std::string> see(std::size_t step, double loss);

 private:
  double guessing_loss_;
  double first_loss_ = 0;
  bool has_warned_ = false;
};

// Prints the warning as a line on stderr. Copies watch for themselves.
std::function<void(std::size_t step, double loss)> warn_of_explosion(std::size_t num_classes);

}  // namespace lockstep::tools

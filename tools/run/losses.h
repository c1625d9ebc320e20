// Reads the losses of the steps without making the device wait.
//
// Reading a loss at once would stop the host until the GPU has finished the whole step. So each
// loss is copied to pinned host memory after its step, and looked at when it has arrived, at most
// kMaxLate steps later. On the CPU it is there at once.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/module.h"
#include "engine/nn/state_dict.h"
#include "engine/tensor/tensor.h"

namespace lockstep::tools {

// A step's loss on this rank: the sum over its rows; for a text, over its tokens.
struct StepLoss {
  std::size_t step = 0;
  std::size_t num_rows = 0;
  double sum = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepLoss, step, num_rows, sum)

inline double mean_of(const StepLoss& loss) {
  return loss.sum / static_cast<double>(loss.num_rows);
}

class LossLog {
 public:
  static constexpr std::size_t kMaxLate = 16;

  // on_loss is called once per step, in order; push() and drain() pass its exceptions on.
  explicit LossLog(std::function<void(const StepLoss&)> on_loss) : on_loss_(std::move(on_loss)) {}

  // sum: one element. Reports this step or earlier ones.
  void push(std::size_t step, std::size_t num_rows, const Tensor& sum);
  // Reports all steps pushed so far; waits for them.
  void drain();

 private:
  struct Pending {
    StepLoss loss;
    Tensor pinned;
    std::shared_ptr<runtime::Event> arrived;
  };

  void report_oldest();

  std::function<void(const StepLoss&)> on_loss_;
  std::array<Pending, kMaxLate> pending_;
  std::size_t num_pushed_ = 0;
  std::size_t num_reported_ = 0;
};

// The mean losses of a run, thinned: each point is the mean over steps_per_point steps; the last
// may have fewer.
struct ThinnedLosses {
  static constexpr std::size_t kMostPoints = 256;

  std::size_t steps_per_point = 1;
  std::vector<double> mean;
};

// Adds the losses of a run of known length up to such points.
class LossCurve {
 public:
  explicit LossCurve(std::size_t num_steps);

  // Adds a rank's loss. Steps may come in any order.
  void add(const StepLoss& loss);

  // The sums of the losses, then the numbers of rows, point by point. Ranks add these up before
  // means().
  const std::vector<double>& sums_and_rows() const { return sums_and_rows_; }
  ThinnedLosses means(const std::vector<double>& sums_and_rows) const;

 private:
  std::size_t steps_per_point_;
  std::vector<double> sums_and_rows_;
};

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

// Throws Error{Numeric} that names step and rank if the loss is not finite, and the first parameter
// of the model that is not. The device may be some steps ahead, so the parameter may be from a
// later step.
void require_finite(const StepLoss& loss, int rank, const nn::Module& model,
                    std::string_view consequence);

// The same for weights after the last of num_steps steps. REQUIRES: they are on the CPU.
void require_finite(const nn::StateDict& weights, std::size_t num_steps,
                    std::string_view consequence);

}  // namespace lockstep::tools

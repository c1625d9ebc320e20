// The losses of the steps, read without making the device wait.
//
// Reading a loss at once would stop the host until the GPU has done the whole step. So each loss is
// sent to pinned host memory behind its step and looked at when it has arrived, at most kMaxLate
// steps later. On the CPU it is there already.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/files.h"
#include "engine/nn/module.h"
#include "engine/nn/state_dict.h"
#include "engine/tensor/tensor.h"

namespace lockstep::tools {

// A step's loss on this rank: the sum over its rows.
struct StepLoss {
  std::size_t step = 0;
  std::size_t num_rows = 0;
  double sum = 0;
};

inline double mean_of(const StepLoss& loss) {
  return loss.sum / static_cast<double>(loss.num_rows);
}

class LossLog {
 public:
  static constexpr std::size_t kMaxLate = 16;

  // on_loss is called once per step, in order; what it throws, push() and drain() throw.
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

// The losses of all steps, thinned: kMostPoints means of equally many steps each (of the last point
// perhaps fewer).
class LossCurve {
 public:
  static constexpr std::size_t kMostPoints = 256;

  // Adds a rank's loss. Steps may come in any order.
  void add(const StepLoss& loss);

  std::size_t steps_per_point() const { return steps_per_point_; }
  // Sums of the losses, then numbers of rows, point by point: what ranks add up.
  std::vector<double> sums_and_rows() const;

 private:
  struct Point {
    double sum = 0;
    double num_rows = 0;
  };

  std::size_t steps_per_point_ = 1;
  std::vector<Point> points_;
};

// What a run keeps of its losses: means over all ranks' rows.
struct ThinnedLosses {
  std::size_t steps_per_point = 1;
  std::vector<double> mean;
};

// The means of LossCurve::sums_and_rows().
ThinnedLosses thinned_losses(std::size_t steps_per_point, const std::vector<double>& sums_and_rows);

// Throws Error{Numeric} naming step and rank unless the loss is a finite number, and of the model
// the first parameter that is not, which may be later by the steps that a device is ahead.
void require_finite(const StepLoss& loss, int rank, const nn::Module& model,
                    std::string_view consequence);

// The same of weights after the last of so many steps. REQUIRES: they are on the CPU.
void require_finite(const nn::StateDict& weights, std::size_t num_steps,
                    std::string_view consequence);

// --log: one JSON object per line and step.
struct StepRecord {
  std::size_t step = 0;
  std::size_t epoch = 0;
  double loss = 0;  // mean over the global batch
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  double step_seconds = 0;
  double samples_per_second = 0;
};

class StepLog {
 public:
  // Throws Error{Io} when the file cannot be written, as all of these do.
  explicit StepLog(const std::string& path) : file_(path, "--log") {}

  // The first line replaces the file that was there; each stays, whatever becomes of the run.
  void write(const StepRecord& record);
  void finish() { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace lockstep::tools

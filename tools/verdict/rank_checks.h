// The checks inside a run: do all ranks together still compute what one device would?
//
// Float rounding makes two correct runs drift apart, the faster the more often a sum falls on the
// other side of ReLU's kink; after thousands of steps their weights say nothing about the engine.
// So the checks compare like with like, on the weights that the run has reached:
//
//   when       the first step of every epoch; an epoch's last step if its batch is smaller; and
//              once more at the end, on the first batch of the epoch that would follow
//   rows       every rank's batch is its part of the global batch, and the parts are the whole
//   replicas   every rank's weights equal rank 0's bit for bit, before the step and after it (and
//              the buffers before the first; later each forward pass takes rank 0's)
//   gradients  every rank's gradients equal one device's (gradient_error.h says how nearly), which
//              rank 0 computes from the weights before the step and from the data set's own rows
//
// The step that is checked is one that trains, and nothing in it is touched: its gradients are read
// after it, when the optimizer has used them (and clipped them, so the reference is clipped too).
// A bucket that nobody waited for looks right by then, but the weights made of it do not.
// All ranks call everything at the same points, and each learns the same. Under --sampler torch the
// ranks train on other numbers than one device, so only the replicas are compared.
#pragma once

#include <functional>

#include "tools/verdict/check_report.h"
#include "tools/verdict/findings.h"

namespace lockstep::tools {

// A rank that this thread drives.
struct CheckedRank {
  int rank = 0;
  nn::Module* module = nullptr;
};

class RankChecks {
 public:
  // ranks: all of the run, or with a communicator this one. devices: of these ranks; several of one
  // rank under DataParallel. num_devices: of the whole run.
  RankChecks(const TrainingTask& task, std::vector<CheckedRank> ranks, std::vector<Device> devices,
             std::size_t num_devices, comm::Communicator* communicator);

  bool is_due(std::size_t epoch, std::size_t step) const;
  void before_step(std::size_t step);
  // batches: by local rank.
  void after_step(std::size_t epoch, std::size_t step, const std::vector<data::Batch>& batches);

  bool is_end_of_first_steps(std::size_t num_steps_done) const;
  void keep_first_weights(std::size_t num_steps_done);

  // compute_gradients() takes the first batches of this epoch and leaves gradients, as a step does
  // before its optimizer.
  void at_end(std::size_t epoch,
              const std::function<std::vector<data::Batch>()>& compute_gradients);

  const RunFindings& findings() const { return findings_; }

 private:
  class Window;

  // rows: of the global batch.
  void check(std::size_t step, const std::vector<std::size_t>& rows,
             const std::vector<data::Batch>& batches, Clipping clipping);
  ReferenceGradient shared_reference(const std::vector<std::size_t>& rows, Clipping clipping) const;
  KeptTensors shared_tensors(std::size_t local, std::size_t step) const;
  std::vector<double> errors_of(std::size_t local, const ReferenceGradient& reference) const;
  void judge(std::size_t step, std::size_t num_global_rows,
             const std::vector<CheckReport>& reports);
  // Over ranks and parameters.
  struct WorstGradient {
    int rank = 0;
    std::size_t parameter = 0;
    double error = 0;
  };
  WorstGradient worst_gradient(const std::vector<CheckReport>& reports) const;
  void judge_rows(std::size_t step, std::size_t num_global_rows,
                  const std::vector<CheckReport>& reports, const WorstGradient& worst);
  enum class When { before_step, after_step };
  void judge_replicas(std::size_t step, const std::vector<CheckReport>& reports, When when);
  void add(Finding finding);

  const TrainingTask& task_;
  const std::vector<CheckedRank> ranks_;
  const std::vector<Device> devices_;
  const std::size_t num_devices_;
  comm::Communicator* const communicator_;
  std::vector<std::string> parameter_names_;
  std::vector<KeptTensors> before_;  // by local rank
  std::vector<KeptTensors> after_;
  RunFindings findings_;
};

}  // namespace lockstep::tools

#include "tools/verdict/rank_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"

namespace lockstep::tools {
namespace {

// The checks wait for rank 0's reference, which takes as long as a step of one device.
constexpr double kTimeoutSeconds = 600;

}  // namespace

// While one lives, what happens is no part of the run: its bytes do not count, nor does the memory
// that rank 0 takes for the reference; the timeline shows one span "check", outside of any step.
class RankChecks::Window {
 public:
  explicit Window(RankChecks& checks)
      : checks_(checks),
        span_(trace::Lane::host, trace::Category::host, "check"),
        uncounted_(tracks_of(checks)) {
    std::vector<std::size_t>& peaks = checks.findings_.peak_bytes_before;
    peaks.resize(makes_reference() ? checks.devices_.size() : 0);
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      peaks[i] = std::max(peaks[i], memory(i).statistics().peak_bytes);
    }
    if (!checks.communicator_) return;
    timeout_seconds_ = checks.communicator_->timeout_seconds();
    checks.communicator_->set_timeout_seconds(std::max(timeout_seconds_, kTimeoutSeconds));
  }
  ~Window() {
    for (std::size_t i = 0; makes_reference() && i < checks_.devices_.size(); ++i) {
      memory(i).reset_peak();
    }
    if (checks_.communicator_) checks_.communicator_->set_timeout_seconds(timeout_seconds_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

 private:
  // As they are counted: ranks of DDP, or devices of DataParallel.
  static std::vector<int> tracks_of(const RankChecks& checks) {
    std::vector<int> tracks;
    for (const CheckedRank& rank : checks.ranks_) tracks.push_back(rank.rank);
    for (const Device device : checks.devices_) {
      if (checks.ranks_.size() < checks.devices_.size()) tracks.push_back(device.index);
    }
    return tracks;
  }
  bool makes_reference() const { return checks_.ranks_[0].rank == 0; }
  runtime::MemoryPool& memory(std::size_t i) const {
    return runtime::logical_device(checks_.devices_[i]).memory();
  }

  RankChecks& checks_;
  trace::ScopedSpan span_;
  trace::UntracedScope untraced_;
  trace::UncountedScope uncounted_;
  double timeout_seconds_ = 0;
};

RankChecks::RankChecks(const TrainingTask& task, std::vector<CheckedRank> ranks,
                       std::vector<Device> devices, std::size_t num_devices,
                       comm::Communicator* communicator)
    : task_(task),
      ranks_(std::move(ranks)),
      devices_(std::move(devices)),
      num_devices_(num_devices),
      communicator_(communicator) {
  for (const auto& [name, parameter] : ranks_[0].module->named_parameters()) {
    parameter_names_.push_back(name);
  }
  findings_.gradient_limit =
      gradient_limit(task.dtype, devices_[0].type, kernels::matmul_precision());
}

bool RankChecks::is_due(std::size_t epoch, std::size_t step) const {
  const std::size_t num_steps = task_.steps_per_epoch();
  if (step / num_steps != epoch) return false;  // the epoch is over
  const bool has_smaller_last = task_.data->train.num_rows() % task_.batch != 0;
  return step % num_steps == 0 || (has_smaller_last && step % num_steps == num_steps - 1);
}

void RankChecks::before_step(std::size_t step) {
  before_.clear();
  for (std::size_t i = 0; i < ranks_.size(); ++i) before_.push_back(shared_tensors(i, step));
}

void RankChecks::after_step(std::size_t epoch, std::size_t step,
                            const std::vector<data::Batch>& batches) {
  Window window(*this);
  const std::size_t step_of_epoch = step % task_.steps_per_epoch();
  check(step, global_rows(task_, epoch, step_of_epoch), batches, Clipping::on);
}

bool RankChecks::is_end_of_first_steps(std::size_t num_steps_done) const {
  return num_steps_done == std::min(kFirstSteps, task_.num_steps);
}

void RankChecks::keep_first_weights(std::size_t num_steps_done) {
  findings_.num_first_steps = num_steps_done;
  findings_.first_weights = keep(nn::state_dict(*ranks_[0].module));
}

void RankChecks::at_end(std::size_t epoch,
                        const std::function<std::vector<data::Batch>()>& compute_gradients) {
  Window window(*this);
  before_step(task_.num_steps);
  const std::vector<data::Batch> batches = compute_gradients();
  check(task_.num_steps, global_rows(task_, epoch, 0), batches, Clipping::off);
}

void RankChecks::check(std::size_t step, const std::vector<std::size_t>& rows,
                       const std::vector<data::Batch>& batches, Clipping clipping) {
  const bool is_exact = task_.sampler == Sampler::exact;
  const ReferenceGradient reference =
      is_exact ? shared_reference(rows, clipping) : ReferenceGradient();
  after_.clear();
  std::vector<CheckReport> reports;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    after_.push_back(shared_tensors(i, step));
    CheckReport& report = reports.emplace_back();
    report.digests_before = digests(before_[i]);
    report.digests_after = digests(after_[i]);
    if (!is_exact) continue;
    report.rows = report_rows(task_, batches[i], rows);
    report.gradient_errors = errors_of(i, reference);
  }
  judge(step, rows.size(), exchange_reports(reports, communicator_));
}

ReferenceGradient RankChecks::shared_reference(const std::vector<std::size_t>& rows,
                                               Clipping clipping) const {
  ReferenceGradient reference;
  if (ranks_[0].rank == 0) {
    const std::size_t rows_of_device = (rows.size() + num_devices_ - 1) / num_devices_;
    reference = reference_gradient(task_, devices_[0], before_[0], rows, rows_of_device, clipping);
  } else {
    for (const std::string& name : parameter_names_) {
      reference.values.emplace_back(values_of(before_[0], name).size());
    }
    reference.sizes.resize(reference.values.size());
  }
  share_from_rank_0(reference, communicator_);
  return reference;
}

KeptTensors RankChecks::shared_tensors(std::size_t local, std::size_t step) const {
  KeptTensors tensors = keep(nn::state_dict(*ranks_[local].module));
  if (step > 0) {
    std::erase_if(tensors, [this](const auto& tensor) {
      return std::ranges::count(parameter_names_, tensor.first) == 0;
    });
  }
  return tensors;
}

std::vector<double> RankChecks::errors_of(std::size_t local,
                                          const ReferenceGradient& reference) const {
  std::vector<std::vector<double>> found;
  for (const Variable& parameter : ranks_[local].module->parameters()) {
    found.push_back(parameter.grad().defined() ? parameter.grad().to_vector<double>()
                                               : std::vector<double>{});
  }
  return gradient_errors(found, reference);
}

void RankChecks::judge(std::size_t step, std::size_t num_global_rows,
                       const std::vector<CheckReport>& reports) {
  const bool is_exact = task_.sampler == Sampler::exact;
  const WorstGradient worst = is_exact ? worst_gradient(reports) : WorstGradient{};
  if (is_exact) {
    findings_.gradient_checks.push_back({step, worst.error});
    judge_rows(step, num_global_rows, reports, worst);
  }
  judge_replicas(step, reports, When::before_step);
  if (is_exact && !(worst.error <= findings_.gradient_limit)) {
    add({"gradients", step, worst.rank, parameter_names_[worst.parameter],
         fmt::format("relative error {:.3g} against one device's gradient on the same weights and "
                     "rows, limit {:.0e}",
                     worst.error, findings_.gradient_limit)});
  }
  judge_replicas(step, reports, When::after_step);
}

RankChecks::WorstGradient RankChecks::worst_gradient(
    const std::vector<CheckReport>& reports) const {
  WorstGradient worst;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    for (std::size_t p = 0; p < parameter_names_.size(); ++p) {
      const double error = reports[rank].gradient_errors[p];
      if (error <= worst.error) continue;
      worst = {static_cast<int>(rank), p, error};
      if (std::isnan(error)) return worst;
    }
  }
  return worst;
}

void RankChecks::judge_rows(std::size_t step, std::size_t num_global_rows,
                            const std::vector<CheckReport>& reports, const WorstGradient& worst) {
  const auto num_rows = static_cast<std::int64_t>(num_global_rows);
  const auto fail_on = [&](std::size_t rank, const std::string& what) {
    add({"rows", step, static_cast<int>(rank), parameter_names_[worst.parameter],
         fmt::format("{}; its gradient has the relative error {:.3g}", what, worst.error)});
  };
  std::int64_t next = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const RowsReport& rows = reports[rank].rows;
    if (rows.wrong_row != RowsReport::kAllRight) {
      fail_on(rank, fmt::format("the {} of row {} of the shard {} not row {}'s of the global batch",
                                rows.wrong_label ? "label" : "features", rows.wrong_row,
                                rows.wrong_label ? "is" : "are", rows.offset + rows.wrong_row));
    }
    if (rows.num_global_rows != num_rows) {
      fail_on(rank, fmt::format("the rank counts {} rows in the global batch, which has {}",
                                rows.num_global_rows, num_rows));
    }
    if (rows.num_rows == 0) continue;
    if (rows.offset != next) {
      fail_on(rank, fmt::format("the shard begins at row {} of the global batch, and those before "
                                "it end at row {}",
                                rows.offset, next));
    }
    next = rows.offset + rows.num_rows;
  }
  if (next == num_rows) return;
  fail_on(
      reports.size() - 1,
      fmt::format("the shards end at row {} of the global batch, which has {}", next, num_rows));
}

void RankChecks::judge_replicas(std::size_t step, const std::vector<CheckReport>& reports,
                                When when) {
  const bool is_before = when == When::before_step;
  const auto list = is_before ? &CheckReport::digests_before : &CheckReport::digests_after;
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    for (std::size_t i = 0; i < (reports[0].*list).size(); ++i) {
      if ((reports[rank].*list)[i] == (reports[0].*list)[i]) continue;
      // Every rank has all reports, so all of them come here.
      std::vector<std::vector<double>> mine;
      for (const KeptTensors& kept : is_before ? before_ : after_) mine.push_back(kept[i].second);
      const double difference = differences_from_rank_0(mine, communicator_)[rank];
      add({"replicas", step, static_cast<int>(rank), before_[0][i].first,
           fmt::format("{} the step it differs from rank 0's by {:.3g}; all ranks must hold the "
                       "same bits",
                       is_before ? "before" : "after", difference)});
      return;
    }
  }
}

void RankChecks::add(Finding finding) {
  if (!findings_.failure) findings_.failure = std::move(finding);
}

}  // namespace lockstep::tools

#include "tools/training/loop.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "engine/core/thread_context.h"
#include "engine/nn/loss.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"
#include "tools/training/gradients.h"
#include "tools/verdict/rank_checks.h"

namespace lockstep::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The seconds of an epoch, without those in which it was paused.
class EpochClock {
 public:
  void start() {
    paused_ = {};
    started_ = Clock::now();
  }
  // Runs work() while the clock stands.
  template <typename Work>
  void pause_for(const Work& work) {
    const Clock::time_point begin = Clock::now();
    work();
    paused_ += Clock::now() - begin;
  }
  double seconds() const { return seconds_since(started_ + paused_); }

 private:
  Clock::time_point started_;
  Clock::duration paused_{};
};

// One graph, and what it leaves behind, by local rank.
struct CapturedStep {
  explicit CapturedStep(const LocalModels& models) : graph(models.devices()) {}

  runtime::StepGraph graph;
  std::vector<Tensor> losses;
  std::vector<Tensor> norms;  // of the gradients, where they are clipped or logged
};

// The steps of an epoch have the same rows but for the last one, whose batch may be smaller: a
// graph for each, over the same tensors, of which the smaller batch is the first rows.
struct CapturedSteps {
  CapturedSteps(const TrainingTask& task, const LocalModels& models)
      : of_full_batch(models), of_last_batch(models) {
    const plan::ScatterPlan plan = plan::scatter_plan(task.rows_of_full_batch(), models.num_ranks);
    for (const RankModel& model : models.ranks) {
      const auto rank = static_cast<std::size_t>(model.rank);
      const std::size_t rows = rank < plan.parts.size() ? plan.parts[rank].size : 0;
      const Device device = model.devices[0];
      x.push_back(Tensor::empty({rows, task.data->train.num_features}, task.dtype, device));
      labels.push_back(Tensor::empty({rows}, DType::int64, device));
    }
  }

  CapturedStep& step_of(const std::vector<data::Batch>& batches) {
    const bool is_full =
        std::ranges::equal(batches, labels, [](const data::Batch& batch, const Tensor& full) {
          return batch.labels.num_elements() == full.num_elements();
        });
    return is_full ? of_full_batch : of_last_batch;
  }

  // Where batches are put, by local rank.
  std::vector<Tensor> x;       // [rows, features]
  std::vector<Tensor> labels;  // [rows] int64
  CapturedStep of_full_batch;
  CapturedStep of_last_batch;
};

std::size_t count_correct_rows(const TrainingTask& task, const RankModel& model,
                               std::size_t num_ranks) {
  const data::LabelledRows& test = task.data->test;
  data::SamplerOptions options;
  options.num_samples = test.num_rows();
  options.batch_size = 1024;
  options.rank = static_cast<std::size_t>(model.rank);
  options.world_size = num_ranks;
  options.shuffle = data::Shuffle::off;
  data::DataLoader loader(
      std::shared_ptr<const data::LabelledRows>(task.data, &test),
      [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
      {model.devices[0], task.dtype, 4});
  const NoGradScope no_grad;
  model.inner->eval();
  std::size_t num_correct = 0;
  while (const std::optional<data::Batch> batch = loader.next()) {
    if (batch->labels.num_elements() == 0) continue;
    const Tensor logits = (*model.inner)(Variable(batch->x)).value();
    num_correct += nn::count_correct(logits, batch->labels);
  }
  model.inner->train();
  return num_correct;
}

// A fraction of the test rows, of which each rank judges its part, in eval mode. All ranks call it.
double measure_accuracy(const TrainingTask& task, const LocalModels& models) {
  std::size_t correct = 0;
  for (const RankModel& model : models.ranks) {
    correct += count_correct_rows(task, model, models.num_ranks);
  }
  return models.sum_over_ranks({static_cast<double>(correct)})[0] /
         static_cast<double>(task.data->test.num_rows());
}

class TrainingLoop {
 public:
  TrainingLoop(const TrainingTask& task, const LocalModels& models,
               const TrainingObserver& observer)
      : task_(task),
        models_(models),
        observer_(observer),
        is_first_(models.first().rank == 0),
        has_log_(!observer.log_path.empty()) {
    for (const RankModel& model : models.ranks) {
      optimizers_.push_back(make_optimizer(task, model));
      loaders_.push_back(make_loader(task, model, models.num_ranks));
      losses_.emplace_back(
          [this, local = losses_.size()](const StepLoss& loss) { take(loss, local); });
    }
    if (task.launching == TrainingTask::Launching::graph) captured_.emplace(task, models);
    if (is_first_ && has_log_) log_.emplace(observer.log_path);
    if (observer.checks == Checks::off) return;
    checks_.emplace(task, models, optimizers_);
  }

  LoopReport run() {
    LoopReport report;
    for (std::size_t epoch = 0; epoch < task_.num_epochs(); ++epoch) {
      clock_.start();
      epoch_loss_ = {};
      start_epoch(epoch);
      while (step_ < task_.num_steps && run_checked_step(epoch)) count_step();
      drain_losses();
      report.epoch_seconds.push_back(clock_.seconds());
      report.last_epoch_loss = mean_over_ranks(epoch_loss_);
      if (checks_) checks_->after_epoch(step_ - 1, report.last_epoch_loss);
      // Acted out, test rows take their time as a step's do, so the last epoch has to do.
      const bool is_judged = !task_.slow_motion || epoch + 1 == task_.num_epochs();
      if (is_judged && task_.data->test.num_rows() > 0) {
        report.epoch_accuracy.push_back(measure_accuracy(task_, models_));
      }
      if (is_first_ && observer_.on_epoch) {
        observer_.on_epoch(epoch, report.epoch_seconds.back(), report.last_epoch_loss);
      }
    }
    report.losses = losses_over_ranks();
    if (checks_) {
      checks_->after_run(report.losses);
      report.findings = checks_->findings();
    }
    if (log_) log_->finish();
    return report;
  }

 private:
  void start_epoch(std::size_t epoch) {
    for (const auto& loader : loaders_) loader->start_epoch(epoch);
  }

  void count_step() {
    ++step_;
    if (observer_.on_step && is_first_) observer_.on_step(step_);
  }

  // False at the end of the epoch.
  bool run_checked_step(std::size_t epoch) {
    const bool is_checked = checks_ && step_ / task_.steps_per_epoch() == epoch;
    const bool is_read = is_checked && checks_->is_read(step_);
    if (is_read) pause([&] { checks_->before_step(step_); });
    if (!run_step(epoch)) return false;
    if (!is_checked) return true;
    if (checks_->is_due(step_)) drain_losses();
    const auto check = [&] { checks_->after_step(step_, batches_); };
    is_read ? pause(check) : check();
    return true;
  }

  // What the devices still do belongs to the epoch.
  template <typename Check>
  void pause(const Check& check) {
    for (const Device device : models_.devices()) stream_of(device).synchronize();
    clock_.pause_for(check);
  }

  static runtime::Stream& stream_of(Device device) {
    return runtime::logical_device(device).compute_stream();
  }

  // Whose times stand for the step.
  runtime::Stream& leading_stream() const { return stream_of(models_.first().devices[0]); }

  // False at the end of the epoch, which comes for all ranks at once.
  bool run_step(std::size_t epoch) {
    const Clock::time_point start = Clock::now();
    thread_context().step = step_;
    runtime::WorkSpan span(leading_stream(), trace::Lane::host, trace::Category::step, "step");
    span.set_sequence(static_cast<std::int64_t>(step_));
    if (!take_batches()) {
      span.cancel();
      return false;
    }
    const double learning_rate =
        task_.optimizer.schedule.learning_rate(task_.optimizer.learning_rate, step_);
    for (const auto& optimizer : optimizers_) optimizer->set_learning_rate(learning_rate);
    double grad_norm = 0;
    const std::vector<Tensor> losses =
        captured_ ? launch(captured_->step_of(batches_), grad_norm)
                  : update_weights([&] { grad_norm = clip_or_measure_norm(); });
    for (std::size_t local = 0; local < losses.size(); ++local) {
      losses_[local].push(step_, rows_of_loss(batches_[local]), losses[local]);
    }
    if (has_log_) log_step({step_, epoch, 0, learning_rate, grad_norm, 0, 0}, start);
    return true;
  }

  bool take_batches() {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::data, "next batch");
    runtime::DeviceSpan on_device(leading_stream(), trace::Lane::compute, trace::Category::data,
                                  "take batch");
    batches_.clear();
    for (std::size_t local = 0; local < loaders_.size(); ++local) {  // each must see the end
      const std::optional<data::Batch> batch =
          captured_ ? loaders_[local]->next_into(captured_->x[local], captured_->labels[local])
                    : loaders_[local]->next();
      if (batch) batches_.push_back(*batch);
    }
    return !batches_.empty();
  }

  template <typename Clip>
  std::vector<Tensor> update_weights(const Clip& clip) {
    for (const auto& optimizer : optimizers_) optimizer->zero_grad();
    if (checks_) checks_->after_clearing(step_);
    std::vector<Tensor> losses = compute_gradients(task_, models_, batches_);
    if (task_.optimizer.clip_norm || has_log_) clip();
    for (const auto& optimizer : optimizers_) optimizer->step();
    return losses;
  }

  // The same by a graph: once it is captured, nothing here but the launch happens on the host,
  // unless the log wants the norm.
  std::vector<Tensor> launch(CapturedStep& step, double& grad_norm) {
    for (const auto& optimizer : optimizers_) optimizer->write_learning_rate();
    const bool replays = step.graph.is_captured();
    runtime::DeviceSpan on_device(leading_stream(), trace::Lane::compute, trace::Category::op,
                                  "launch graph");
    step.graph.run(
        [&] { step.losses = update_weights([&] { step.norms = clip_or_measure_on_devices(); }); });
    for (const auto& optimizer : optimizers_) {
      if (replays) optimizer->count_replayed_step();
    }
    if (has_log_) grad_norm = step.norms[0].item();
    return step.losses;
  }

  // In bitwise mode the loss is the sum over all ranks already.
  bool is_loss_global() const { return task_.summation == Summation::bitwise; }

  std::size_t rows_of_loss(const data::Batch& batch) const {
    return is_loss_global() ? batch.num_global_rows : batch.labels.num_elements();
  }

  void take(const StepLoss& loss, std::size_t local) {
    const RankModel& model = models_.ranks[local];
    if (checks_) throw_failure(checks_->findings(), loss.sum);
    require_finite(loss, model.rank, *model.inner,
                   checks_ ? "the run cannot be judged" : "training stopped");
    if (checks_) checks_->take_loss(local, loss);
    if (observer_.on_loss && model.rank == 0) observer_.on_loss(loss.step, mean_of(loss));
    if (loss.step != last_loss_.step) last_loss_ = {loss.step, 0, 0};
    last_loss_.sum += loss.sum;
    last_loss_.num_rows += loss.num_rows;
    curve_.add(loss);
    epoch_loss_.sum += loss.sum;
    epoch_loss_.num_rows += loss.num_rows;
  }

  void drain_losses() {
    for (LossLog& losses : losses_) losses.drain();
  }

  double max_norm() const {
    return task_.optimizer.clip_norm.value_or(std::numeric_limits<double>::infinity());
  }

  // Every rank has the same gradients.
  double clip_or_measure_norm() {
    double norm = 0;
    for (const RankModel& model : models_.ranks) {
      norm = optim::clip_grad_norm(model.inner->parameters(), max_norm());
    }
    return norm;
  }
  std::vector<Tensor> clip_or_measure_on_devices() const {
    std::vector<Tensor> norms;
    for (const RankModel& model : models_.ranks) {
      norms.push_back(optim::clip_grad_norm_on_device(model.inner->parameters(), max_norm()));
    }
    return norms;
  }

  // loss: of the ranks that this thread drives.
  double mean_over_ranks(const StepLoss& loss) {
    if (is_loss_global()) return mean_of(loss);
    const std::vector<double> sum_and_rows =
        models_.sum_over_ranks({loss.sum, static_cast<double>(loss.num_rows)});
    return sum_and_rows[0] / sum_and_rows[1];
  }

  // A message at the end of the run, which is no step's.
  ThinnedLosses losses_over_ranks() {
    const trace::UncountedScope after_the_steps({models_.first().rank});
    const std::vector<double> own = curve_.sums_and_rows();
    return thinned_losses(curve_.steps_per_point(),
                          is_loss_global() ? own : models_.sum_over_ranks(own));
  }

  void log_step(StepRecord record, Clock::time_point start) {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::host, "log");
    drain_losses();
    record.loss = mean_over_ranks(last_loss_);
    record.step_seconds = seconds_since(start);
    record.samples_per_second = static_cast<double>(task_.batch) / record.step_seconds;
    if (log_) log_->write(record);
  }

  const TrainingTask& task_;
  const LocalModels& models_;
  const TrainingObserver& observer_;
  const bool is_first_;  // of the ranks that this thread drives, one is rank 0
  const bool has_log_;   // rank 0 writes one, and all ranks take part in the mean
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;  // these four by local rank
  std::vector<std::unique_ptr<data::DataLoader>> loaders_;
  std::vector<LossLog> losses_;
  std::vector<data::Batch> batches_;  // of the last step
  std::optional<CapturedSteps> captured_;
  StepLoss last_loss_;   // of all ranks that this thread drives
  StepLoss epoch_loss_;  // sum and rows of this epoch
  LossCurve curve_;
  EpochClock clock_;
  std::optional<RankChecks> checks_;
  std::optional<StepLog> log_;
  std::size_t step_ = 0;
};

}  // namespace

LoopReport run_loop(const TrainingTask& task, const LocalModels& models,
                    const TrainingObserver& observer) {
  ThreadContext context = thread_context();
  if (task.launching == TrainingTask::Launching::graph) context.issue = Issue::by_caller;
  const ThreadContextScope scope(context);
  return TrainingLoop(task, models, observer).run();
}

}  // namespace lockstep::tools

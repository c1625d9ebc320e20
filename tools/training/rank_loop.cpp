#include "tools/training/rank_loop.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/span.h"
#include "tools/training/epoch_clock.h"
#include "tools/training/loss_log.h"
#include "tools/training/step_log.h"
#include "tools/training/training_parts.h"
#include "tools/verdict/rank_checks.h"

namespace lockstep::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums a number over the ranks.
double sum_over_ranks(double value, comm::Communicator* communicator) {
  if (!communicator) return value;
  const Tensor total = Tensor::from(std::vector<double>{value}, {1});
  communicator->all_reduce(total).wait();
  return total.item();
}

// A step of full batches as a graph, and the tensors that it reads and writes.
struct CapturedStep {
  CapturedStep(const TrainingTask& task, const std::vector<Device>& devices)
      : graph(devices), memory(task, rows_of_full_batch(task), devices[0]) {}

  runtime::StepGraph graph;
  BatchMemory memory;
  Tensor loss;
};

class RankLoop {
 public:
  RankLoop(const TrainingTask& task, const RankModel& model, const TrainingObserver& observer)
      : task_(task),
        model_(model),
        observer_(observer),
        parameters_(model.inner->parameters()),
        optimizer_(make_optimizer(task.optimizer, parameters_)),
        loader_(
            make_loader(task, model.num_ranks, static_cast<std::size_t>(rank()), model.devices[0])),
        losses_([this](const StepLoss& loss) { take(loss); }) {
    if (task.launching == TrainingTask::Launching::graph) graph_.emplace(task, model.devices);
    if (rank() == 0 && !observer.log_path.empty()) log_.emplace(observer.log_path);
    has_log_ = !observer.log_path.empty();
    if (observer.checks == Checks::on) {
      const std::size_t num_devices = std::max(model.num_ranks, model.devices.size());
      checks_.emplace(task, std::vector<CheckedRank>{{rank(), model.inner.get()}}, model.devices,
                      num_devices, model.communicator);
    }
  }

  RankReport run() {
    RankReport report;
    for (std::size_t epoch = 0; epoch < task_.num_epochs(); ++epoch) {
      clock_.start();
      loss_sum_ = 0;
      num_rows_ = 0;
      loader_->start_epoch(epoch);
      while (step_ < task_.num_steps && run_checked_step(epoch)) count_step();
      losses_.drain();
      report.epoch_seconds.push_back(clock_.seconds());
      report.last_epoch_loss = mean_loss(loss_sum_, num_rows_);
      if (rank() == 0 && observer_.on_epoch) {
        observer_.on_epoch(epoch, report.epoch_seconds.back(), report.last_epoch_loss);
      }
    }
    if (checks_) {
      check_at_end();
      report.findings = checks_->findings();
    }
    return report;
  }

 private:
  void count_step() {
    ++step_;
    if (observer_.on_step && rank() == 0) observer_.on_step(step_);
  }

  int rank() const { return model_.communicator ? model_.communicator->rank() : 0; }

  // False at the end of the epoch.
  bool run_checked_step(std::size_t epoch) {
    const bool is_due = checks_ && checks_->is_due(epoch, step_);
    if (is_due) pause([&] { checks_->before_step(step_); });
    if (!run_step(epoch)) return false;
    if (is_due) pause([&] { checks_->after_step(epoch, step_, {*batch_}); });
    if (checks_ && checks_->is_end_of_first_steps(step_ + 1)) {
      pause([&] { checks_->keep_first_weights(step_ + 1); });
    }
    return true;
  }

  // What the devices still do belongs to the epoch.
  template <typename Check>
  void pause(const Check& check) {
    for (const Device device : model_.devices) {
      runtime::logical_device(device).compute_stream().synchronize();
    }
    clock_.pause_for(check);
  }

  void check_at_end() {
    checks_->at_end(task_.num_epochs(), [this] {
      batch_.reset();
      loader_->start_epoch(task_.num_epochs());
      batch_ = loader_->next();
      optimizer_->zero_grad();
      compute_gradients(task_, model_, *batch_);
      return std::vector<data::Batch>{*batch_};
    });
  }

  // False at the end of the epoch.
  bool run_step(std::size_t epoch) {
    const Clock::time_point start = Clock::now();
    trace::ScopedSpan step_span(trace::Lane::host, trace::Category::step, "step");
    step_span.set_sequence(static_cast<std::int64_t>(step_));
    runtime::Stream& stream = runtime::logical_device(model_.devices[0]).compute_stream();
    runtime::DeviceSpan step_on_device(stream, trace::Lane::host, trace::Category::step, "step");
    step_on_device.set_sequence(static_cast<std::int64_t>(step_));
    std::optional<data::Batch>& batch = batch_;
    batch.reset();
    {
      trace::ScopedSpan span(trace::Lane::host, trace::Category::data, "next batch");
      runtime::DeviceSpan on_device(stream, trace::Lane::compute, trace::Category::data,
                                    "take batch");
      batch =
          graph_ ? loader_->next_into(graph_->memory.x, graph_->memory.labels) : loader_->next();
    }
    if (!batch) {
      step_span.cancel();
      step_on_device.cancel();
      return false;
    }
    thread_context().step = step_;
    thread_context().first_row = batch->global_offset;
    const double learning_rate =
        task_.optimizer.schedule.learning_rate(task_.optimizer.learning_rate, step_);
    optimizer_->set_learning_rate(learning_rate);
    double grad_norm = 0;
    const Tensor loss = graph_ && graph_->memory.is_filled_by(*batch) ? run_captured(*batch)
                                                                      : run_now(*batch, grad_norm);
    // In bitwise mode the sum is over all ranks already.
    const bool is_global = task_.summation == Summation::bitwise;
    const std::size_t rows = is_global ? batch->num_global_rows : batch->labels.num_elements();
    losses_.push(step_, rows, loss);
    if (has_log_) {
      trace::ScopedSpan span(trace::Lane::host, trace::Category::host, "log");
      losses_.drain();
      log_step({step_, epoch, 0, learning_rate, grad_norm, 0, 0}, last_loss_.sum, rows, start);
    }
    return true;
  }

  Tensor run_now(const data::Batch& batch, double& grad_norm) {
    optimizer_->zero_grad();
    Tensor loss = compute_gradients(task_, model_, batch);
    grad_norm = clip_or_measure_norm();
    optimizer_->step();
    return loss;
  }

  // The same by a graph: once it is captured, nothing here but the launch happens on the host.
  Tensor run_captured(const data::Batch& batch) {
    optimizer_->write_learning_rate();
    const bool replays = graph_->graph.is_captured();
    runtime::DeviceSpan on_device(batch.x.stream(), trace::Lane::compute, trace::Category::op,
                                  "launch graph");
    graph_->graph.run([&] {
      optimizer_->zero_grad();
      graph_->loss = compute_gradients(task_, model_, batch);
      optimizer_->step();
    });
    if (replays) optimizer_->count_replayed_step();
    return graph_->loss;
  }

  void take(const StepLoss& loss) {
    if (checks_) throw_failure(checks_->findings(), loss.sum);
    require_finite(loss.sum, loss.step, rank());
    if (observer_.on_loss && rank() == 0) observer_.on_loss(loss.step, mean_of(loss));
    last_loss_ = loss;
    loss_sum_ += loss.sum;
    num_rows_ += loss.num_rows;
  }

  double clip_or_measure_norm() {
    if (!task_.optimizer.clip_norm && !has_log_) return 0;
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    return optim::clip_grad_norm(parameters_, task_.optimizer.clip_norm.value_or(kNoLimit));
  }

  double mean_loss(double loss_sum, std::size_t num_rows) {
    const bool is_global = task_.summation == Summation::bitwise;
    comm::Communicator* communicator = is_global ? nullptr : model_.communicator;
    const double rows = sum_over_ranks(static_cast<double>(num_rows), communicator);
    return sum_over_ranks(loss_sum, communicator) / rows;
  }

  void log_step(StepRecord record, double loss_sum, std::size_t rows, Clock::time_point start) {
    record.loss = mean_loss(loss_sum, rows);
    record.step_seconds = seconds_since(start);
    record.samples_per_second = static_cast<double>(task_.batch) / record.step_seconds;
    if (log_) log_->write(record);
  }

  const TrainingTask& task_;
  const RankModel& model_;
  const TrainingObserver& observer_;
  std::vector<Variable> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<data::DataLoader> loader_;
  std::optional<CapturedStep> graph_;
  LossLog losses_;
  StepLoss last_loss_;
  double loss_sum_ = 0;       // of this epoch, over this rank's rows
  std::size_t num_rows_ = 0;  // behind loss_sum_
  EpochClock clock_;
  std::optional<data::Batch> batch_;  // of the last step
  std::optional<RankChecks> checks_;
  std::optional<StepLog> log_;  // rank 0
  bool has_log_ = false;        // all ranks: they take part in the mean
  std::size_t step_ = 0;
};

}  // namespace

RankReport run_rank(const TrainingTask& task, const RankModel& model,
                    const TrainingObserver& observer) {
  ThreadContext context = thread_context();
  if (task.launching == TrainingTask::Launching::graph) context.issue = Issue::by_caller;
  const ThreadContextScope scope(context);
  return RankLoop(task, model, observer).run();
}

}  // namespace lockstep::tools

#include "tools/training/captured_ranks.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/core/thread_context.h"
#include "engine/parallel/ddp/replica_group.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/step_graph.h"
#include "tools/training/epoch_clock.h"
#include "tools/training/loss_log.h"
#include "tools/training/training_parts.h"
#include "tools/verdict/rank_checks.h"

namespace lockstep::tools {
namespace {

parallel::DdpOptions ddp_options(const TrainingTask& task) {
  parallel::DdpOptions options;
  options.reducer.bucket_byte_limits = task.bucket_byte_limits;
  return options;
}

// The rows of a full batch that every rank gets; none for ranks that the plan leaves idle.
std::vector<std::size_t> rows_of_ranks(const TrainingTask& task, std::size_t num_ranks) {
  const plan::ScatterPlan plan = plan::scatter_plan(rows_of_full_batch(task), num_ranks);
  std::vector<std::size_t> rows(num_ranks, 0);
  for (std::size_t rank = 0; rank < plan.parts.size(); ++rank) rows[rank] = plan.parts[rank].size;
  return rows;
}

// What one rank has beside its replica.
struct RankState {
  Device device;
  std::unique_ptr<data::DataLoader> loader;
  std::unique_ptr<optim::Optimizer> optimizer;
  BatchMemory memory;
  data::Batch batch;
  Tensor loss;
};

class GroupLoop {
 public:
  GroupLoop(const TrainingTask& task, const std::shared_ptr<nn::Module>& model,
            const std::vector<Device>& devices, const TrainingObserver& observer)
      : task_(task),
        observer_(observer),
        group_(model, devices, ddp_options(task), task.all_reduce_plan),
        graph_(devices) {
    const std::vector<std::size_t> rows = rows_of_ranks(task, devices.size());
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      ranks_.push_back({devices[rank],
                        make_loader(task, devices.size(), rank, devices[rank]),
                        make_optimizer(task.optimizer, group_.replica(rank).parameters()),
                        BatchMemory(task, rows[rank], devices[rank]),
                        {},
                        {}});
      losses_.emplace_back([this, rank](const StepLoss& loss) {
        if (checks_) throw_failure(checks_->findings(), loss.sum);
        require_finite(loss.sum, loss.step, static_cast<int>(rank));
        if (observer_.on_loss && rank == 0) observer_.on_loss(loss.step, mean_of(loss));
        loss_sum_ += loss.sum;
        num_rows_ += loss.num_rows;
      });
    }
    if (observer.checks == Checks::on) {
      std::vector<CheckedRank> checked;
      for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        checked.push_back({static_cast<int>(rank), &group_.replica(rank)});
      }
      checks_.emplace(task, checked, devices, devices.size(), nullptr);
    }
  }

  RankReport run() {
    RankReport report;
    for (std::size_t epoch = 0; epoch < task_.num_epochs(); ++epoch) {
      clock_.start();
      loss_sum_ = 0;
      num_rows_ = 0;
      for (RankState& rank : ranks_) rank.loader->start_epoch(epoch);
      while (step_ < task_.num_steps && run_checked_step(epoch)) {
        ++step_;
        if (observer_.on_step) observer_.on_step(step_);
      }
      for (LossLog& losses : losses_) losses.drain();
      report.epoch_seconds.push_back(clock_.seconds());
      report.last_epoch_loss = loss_sum_ / static_cast<double>(num_rows_);
      if (observer_.on_epoch) {
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
  // False at the end of the epoch.
  bool run_checked_step(std::size_t epoch) {
    const bool is_due = checks_ && checks_->is_due(epoch, step_);
    if (is_due) pause([&] { checks_->before_step(step_); });
    if (!run_step()) return false;
    if (is_due) pause([&] { checks_->after_step(epoch, step_, batches()); });
    if (checks_ && checks_->is_end_of_first_steps(step_ + 1)) {
      pause([&] { checks_->keep_first_weights(step_ + 1); });
    }
    return true;
  }

  // What the devices still do belongs to the epoch.
  template <typename Check>
  void pause(const Check& check) {
    for (const RankState& rank : ranks_) {
      runtime::logical_device(rank.device).compute_stream().synchronize();
    }
    clock_.pause_for(check);
  }

  void check_at_end() {
    checks_->at_end(task_.num_epochs(), [this] {
      for (RankState& rank : ranks_) {
        rank.loader->start_epoch(task_.num_epochs());
        rank.batch = *rank.loader->next_into(rank.memory.x, rank.memory.labels);
      }
      issue_gradients();
      return batches();
    });
  }

  std::vector<data::Batch> batches() const {
    std::vector<data::Batch> all;
    for (const RankState& rank : ranks_) all.push_back(rank.batch);
    return all;
  }

  // False at the end of the epoch, which comes for all ranks at once.
  bool run_step() {
    trace::ScopedSpan step_span(trace::Lane::host, trace::Category::step, "step");
    step_span.set_sequence(static_cast<std::int64_t>(step_));
    runtime::DeviceSpan on_device(runtime::logical_device(ranks_[0].device).compute_stream(),
                                  trace::Lane::host, trace::Category::step, "step", 0, 0);
    on_device.set_sequence(static_cast<std::int64_t>(step_));
    if (!take_batches()) {
      step_span.cancel();
      on_device.cancel();
      return false;
    }
    thread_context().step = step_;
    const double learning_rate =
        task_.optimizer.schedule.learning_rate(task_.optimizer.learning_rate, step_);
    for (RankState& rank : ranks_) rank.optimizer->set_learning_rate(learning_rate);
    const bool is_full = std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) {
      return rank.memory.is_filled_by(rank.batch);
    });
    if (is_full) {
      launch_captured();
    } else {
      issue();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      losses_[rank].push(step_, state.batch.labels.num_elements(), state.loss);
    }
    return true;
  }

  bool take_batches() {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::data, "next batch");
    bool is_there = true;
    for (RankState& rank : ranks_) {  // also at the end of the epoch, which every loader must see
      const auto batch = rank.loader->next_into(rank.memory.x, rank.memory.labels);
      is_there = is_there && batch;
      if (batch) rank.batch = *batch;
    }
    return is_there;
  }

  void launch_captured() {
    for (RankState& rank : ranks_) rank.optimizer->write_learning_rate();
    const bool replays = graph_.is_captured();
    graph_.run([this] { issue(); });
    if (!replays) return;
    for (RankState& rank : ranks_) rank.optimizer->count_replayed_step();
  }

  // The step of all ranks, enqueued by this thread.
  void issue() {
    issue_gradients();
    for (RankState& rank : ranks_) rank.optimizer->step();
  }

  void issue_gradients() {
    for (RankState& rank : ranks_) rank.optimizer->zero_grad();
    group_.run_backward([this](nn::Module& replica, std::size_t index) {
      RankState& rank = ranks_[index];
      RankModel model;
      model.wrapped = std::shared_ptr<nn::Module>(&replica, [](nn::Module*) {});
      model.num_ranks = ranks_.size();
      thread_context().first_row = rank.batch.global_offset;
      rank.loss = compute_gradients(task_, model, rank.batch);
    });
  }

  const TrainingTask& task_;
  const TrainingObserver& observer_;
  parallel::ReplicaGroup group_;
  runtime::StepGraph graph_;
  std::vector<RankState> ranks_;
  std::vector<LossLog> losses_;  // by rank
  EpochClock clock_;
  std::optional<RankChecks> checks_;
  double loss_sum_ = 0;  // of this epoch, over all ranks' rows
  std::size_t num_rows_ = 0;
  std::size_t step_ = 0;
};

}  // namespace

RankReport run_captured_ranks(const TrainingTask& task, const std::shared_ptr<nn::Module>& model,
                              const std::vector<Device>& devices,
                              const TrainingObserver& observer) {
  ThreadContext context = thread_context();
  context.issue = Issue::by_caller;
  const ThreadContextScope scope(context);
  return GroupLoop(task, model, devices, observer).run();
}

}  // namespace lockstep::tools

#include "tools/run/loop.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/core/files.h"
#include "engine/core/thread_context.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"
#include "engine/trace/span.h"
#include "tools/run/step.h"
#include "tools/run/step_checks.h"
#include "tools/run/stop.h"
#include "tools/run/test_rows.h"
#include "tools/run/weights_file.h"

namespace lockstep::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// An optimizer's state for a parameter's padding is zero, and checkpoints leave it out.
Tensor padded(const Tensor& state, const Shape& parameter) {
  if (state.shape() == parameter || state.size(0) >= parameter[0]) return state;
  const Tensor all = Tensor::zeros(parameter, state.dtype(), state.device());
  all.rows(0, state.size(0)).copy_from(state);
  return all;
}

class TrainingLoop {
 public:
  TrainingLoop(const TrainingTask& task, const Strategies& strategies,
               const TrainingObserver& observer)
      : task_(task),
        strategies_(strategies),
        first_(*strategies[0]),
        observer_(observer),
        training_step_(task, strategies),
        is_first_(first_.rank() == 0),
        has_log_(!observer.log_path.empty()),
        curve_(task.num_steps - std::min(task.first_step(), task.num_steps)) {
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      losses_.emplace_back(
          [this, local = losses_.size()](const StepLoss& loss) { take(loss, local); });
    }
    if (task.resumed) resume();
    if (is_first_ && has_log_) log_.emplace(observer.log_path, "--log");
    if (observer.checks == Checks::on) {
      checks_ = make_step_checks(task, strategies, training_step_.optimizers());
      training_step_.set_checks(checks_.get());
    }
  }

  TrainingResult run() {
    result_.num_steps = task_.num_steps;
    if (step_ >= task_.num_steps) judge_test_rows_of_epoch();  // resumed, and nothing is left
    const std::size_t first_epoch = step_ / task_.steps_per_epoch();
    const std::size_t num_epochs = step_ < task_.num_steps ? task_.num_epochs() : 0;
    for (std::size_t epoch = first_epoch; epoch < num_epochs && !is_stopped_; ++epoch) {
      run_epoch(epoch);
    }
    if (is_stopped_) take_stop();
    if (observer_.memory != nullptr) observer_.memory->end_steps(devices_of(strategies_));
    result_.losses = losses_over_ranks();
    if (checks_) result_.findings = checks_->findings();
    if (log_) log_->commit();
    if (is_first_ || first_.is_in_parts()) result_.weights = weights();
    if (is_first_) {
      require_finite(result_.weights, task_.num_steps,
                     checks_ ? "the run cannot be judged" : "nothing is saved");
    }
    return std::move(result_);
  }

 private:
  // Goes on where the checkpoint was made.
  void resume() {
    step_ = task_.first_step();
    const auto steps = static_cast<double>(step_);
    const double sum = sum_over_ranks(first_, {steps})[0];
    require(sum == steps * static_cast<double>(first_.num_ranks() / strategies_.size()),
            ErrorCode::State, "--resume",
            "ranks found checkpoints of different steps, rank {} that of step {}; all of them must "
            "see the same folder",
            first_.rank(), step_);
    const auto& states = task_.resumed->optimizer;
    for (std::size_t local = 0; local < training_step_.optimizers().size(); ++local) {
      const auto pieces = strategies_[local]->pieces(*training_step_.optimizers()[local]);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto found = std::ranges::find_if(
            states, [&](const auto& state) { return state.first == pieces[i].name; });
        require(found != states.end(), ErrorCode::State, "--resume",
                "the checkpoint has no state of the optimizer for {}", pieces[i].name);
        optim::Optimizer::State state = found->second;
        for (Tensor& tensor : state.tensors) {
          tensor = strategies_[local]->cut(pieces[i], padded(tensor, pieces[i].shape));
        }
        training_step_.optimizers()[local]->load_state(i, state);
      }
    }
  }

  // After `step_` steps: rank 0 writes what all ranks hold.
  void keep_checkpoint() {
    const bool is_due =
        step_ % task_.checkpoints->every == 0 || step_ == task_.num_steps || is_stopped_;
    if (!is_due || (!is_first_ && !first_.is_in_parts())) return;
    const auto no_step = beside_steps();
    drain_losses();  // a loss that is not finite ends the run before it is kept
    trace::ScopedSpan span(trace::Lane::host, trace::Category::host, "checkpoint");
    Checkpoint checkpoint{.step = step_,
                          .settings = task_.settings,
                          .bucket_order = first_.bucket_order(),
                          .model = weights(),
                          .optimizer = optimizer_states(),
                          .metadata = metadata_of(task_)};
    if (is_first_) write_checkpoint(*task_.checkpoints, checkpoint);
  }

  MemoryWatch::BesideSteps beside_steps() const {
    return {observer_.memory, devices_of(strategies_)};
  }

  // Messages to rank 0 do not count as a step's.
  nn::StateDict weights() const {
    const trace::UncountedScope no_part_of_a_step({first_.rank()});
    return first_.state_dict();
  }

  OptimizerStates optimizer_states() const {
    const trace::UncountedScope no_part_of_a_step({first_.rank()});
    return whole_optimizer_state(task_, first_, *training_step_.optimizers()[0], step_);
  }

  // The run ends here, before its last step.
  void take_stop() {
    result_.num_steps = step_;
    if (observer_.stop != nullptr) result_.stopped_by = observer_.stop->signal();
    if (task_.checkpoints) keep_checkpoint();
  }

  // A first step is always trained.
  bool may_go_on() {
    const bool is_asked = observer_.stop != nullptr && step_ > task_.first_step();
    is_stopped_ = step_ == task_.end_after || (is_asked && observer_.stop->is_before(step_));
    return !is_stopped_;
  }

  void run_epoch(std::size_t epoch) {
    const std::size_t first_step = step_;
    const Clock::time_point start = Clock::now();
    paused_seconds_ = 0;
    epoch_loss_ = {};
    line_time_ = start;
    line_step_ = step_;
    training_step_.start_epoch(epoch);
    while (step_ < task_.num_steps && may_go_on() && run_checked_step(epoch)) {
      ++step_;
      if (task_.checkpoints) keep_checkpoint();
      if (observer_.on_step && is_first_) observer_.on_step(step_);
    }
    if (step_ == first_step) return;  // stopped, after a whole epoch
    drain_losses();
    const double seconds = seconds_since(start) - paused_seconds_;
    result_.final_loss = mean_over_ranks(epoch_loss_);
    if (is_stopped_ && step_ % task_.steps_per_epoch() != 0) {
      result_.unfinished_epoch_seconds = seconds;
      return;
    }
    result_.epoch_seconds.push_back(seconds);
    if (checks_) checks_->after_epoch(step_ - 1, result_.final_loss);
    // In slow motion, test rows take their time as a step does, so the last epoch has to do.
    const bool is_judged = !task_.slow_motion || epoch + 1 == task_.num_epochs();
    if (is_judged) judge_test_rows_of_epoch();
    if (is_first_ && observer_.on_epoch) {
      observer_.on_epoch(epoch, result_.epoch_seconds.back(), result_.final_loss);
    }
  }

  void judge_test_rows_of_epoch() {
    if (task_.data->test.num_rows() == 0) return;
    const auto no_step = beside_steps();
    std::vector<double>& of_epochs =
        task_.is_text() ? result_.epoch_validation_loss : result_.epoch_accuracy;
    of_epochs.push_back(mean_over_test(task_, strategies_));
  }

  // False at the end of the epoch.
  bool run_checked_step(std::size_t epoch) {
    const bool is_checked = checks_ && step_ / task_.steps_per_epoch() == epoch;
    const bool is_read = is_checked && checks_->is_read(step_);
    if (is_read) pause([&] { checks_->before_step(step_); });
    if (!run_step(epoch)) return false;
    if (task_.resumed && step_ == task_.first_step()) require_right_resumption();
    if (!is_checked) return true;
    if (checks_->is_due(step_)) drain_losses();
    const auto check = [&] { checks_->after_step(step_, training_step_.batches()); };
    is_read ? pause(check) : check();
    return true;
  }

  void require_right_resumption() const {
    const auto finding = make_step_checks(task_, strategies_, training_step_.optimizers())
                             ->wrong_resumption(training_step_.batches());
    require(!finding, ErrorCode::State, "--resume", "the run does not go on where it was: {}",
            finding ? finding->text() : "");
  }

  // Runs a check whose time and memory do not count. What the devices still do belongs to the
  // epoch.
  template <typename Check>
  void pause(const Check& check) {
    for (const Device device : devices_of(strategies_)) {
      runtime::logical_device(device).compute_stream().synchronize();
    }
    const auto no_step = beside_steps();
    const Clock::time_point begin = Clock::now();
    check();
    paused_seconds_ += seconds_since(begin);
  }

  // False at the end of the epoch, which comes for all ranks at once.
  bool run_step(std::size_t epoch) {
    const Clock::time_point start = Clock::now();
    runtime::WorkSpan span(training_step_.stream(), trace::Lane::host, trace::Category::step,
                           "step");
    span.set_sequence(static_cast<std::int64_t>(step_));
    const auto output = training_step_.run(step_, is_norm_asked() ? AskedNorm::yes : AskedNorm::no);
    if (!output) {
      span.cancel();
      return false;
    }
    for (std::size_t local = 0; local < output->losses.size(); ++local) {
      losses_[local].push(step_, rows_of_loss(training_step_.batches()[local]),
                          output->losses[local]);
    }
    if (has_log_ || has_line()) {
      report_step(epoch, training_step_.learning_rate(step_), output->grad_norm, start);
    }
    return true;
  }

  bool is_graph() const { return task_.launching == TrainingTask::Launching::graph; }

  bool has_line() const {
    const std::size_t every = observer_.lines_every;
    return every > 0 && (step_ % every == 0 || step_ + 1 == task_.num_steps);
  }

  // A graph is captured once, for steps with a line and without.
  bool is_norm_asked() const {
    return has_log_ || (is_graph() ? observer_.lines_every > 0 : has_line());
  }

  std::size_t rows_of_loss(const data::Batch& batch) const {
    return first_.is_loss_global() ? batch.num_global_rows * task_.data->train.labels_per_row()
                                   : batch.labels.num_elements();
  }

  void take(const StepLoss& loss, std::size_t local) {
    const parallel::Strategy& strategy = *strategies_[local];
    if (checks_) throw_failure(checks_->findings(), loss.sum);
    require_finite(loss, strategy.rank(), *strategy.module(),
                   checks_ ? "the run cannot be judged" : "training stopped");
    if (checks_) checks_->take_loss(local, loss);
    if (observer_.on_loss && strategy.rank() == 0) observer_.on_loss(loss.step, mean_of(loss));
    if (loss.step != last_loss_.step) last_loss_ = {loss.step, 0, 0};
    for (StepLoss* total : {&last_loss_, &epoch_loss_}) {
      total->sum += loss.sum;
      total->num_rows += loss.num_rows;
    }
    curve_.add({loss.step - task_.first_step(), loss.num_rows, loss.sum});
  }

  void drain_losses() {
    for (LossLog& losses : losses_) losses.drain();
  }

  // loss: of the ranks that this thread drives.
  double mean_over_ranks(const StepLoss& loss) {
    if (first_.is_loss_global()) return mean_of(loss);
    const std::vector<double> sum_and_rows =
        sum_over_ranks(first_, {loss.sum, static_cast<double>(loss.num_rows)});
    return sum_and_rows[0] / sum_and_rows[1];
  }

  // A message at the end of the run, which is no step's.
  ThinnedLosses losses_over_ranks() {
    const trace::UncountedScope after_the_steps({first_.rank()});
    const std::vector<double>& own = curve_.sums_and_rows();
    return curve_.means(first_.is_loss_global() ? own : sum_over_ranks(first_, own));
  }

  void report_step(std::size_t epoch, double learning_rate, const Tensor& grad_norm,
                   Clock::time_point start) {
    trace::ScopedSpan span(trace::Lane::host, trace::Category::host, "log");
    const trace::UncountedScope no_part_of_the_step({first_.rank()});
    drain_losses();
    const LoggedStep line{step_, mean_over_ranks(last_loss_), learning_rate,
                          is_first_ ? grad_norm.item() : 0};
    if (is_first_ && has_line()) print_line(line);
    if (log_) log_step(epoch, line, seconds_since(start));
  }

  void print_line(LoggedStep line) {
    const auto steps = static_cast<double>(step_ + 1 - line_step_);
    line.seconds = seconds_since(line_time_) / steps;
    line.labels_per_second =
        static_cast<double>(task_.rows_of_full_batch() * task_.data->train.labels_per_row()) /
        line.seconds;
    observer_.on_line(line);
    line_time_ = Clock::now();
    line_step_ = step_ + 1;
  }

  // The first line replaces an earlier file; each is published at once, so that a crash keeps it.
  void log_step(std::size_t epoch, const LoggedStep& line, double seconds) {
    const nlohmann::ordered_json json{
        {"step", line.step},
        {"epoch", epoch},
        {"loss", line.loss},
        {"lr", line.learning_rate},
        {"grad_norm", line.grad_norm},
        {"step_seconds", seconds},
        {"samples_per_second", static_cast<double>(task_.rows_of_full_batch()) / seconds}};
    log_->write(json.dump() + '\n');
    log_->publish();
  }

  const TrainingTask& task_;
  const Strategies& strategies_;
  parallel::Strategy& first_;
  const TrainingObserver& observer_;
  TrainingStep training_step_;
  const bool is_first_;          // this thread drives rank 0
  const bool has_log_;           // rank 0 writes one, and all ranks take part in the mean
  std::vector<LossLog> losses_;  // by local rank
  StepLoss last_loss_;           // the sum over the ranks that this thread drives
  StepLoss epoch_loss_;          // sum and rows of this epoch
  LossCurve curve_;
  double paused_seconds_ = 0;           // in this epoch
  std::unique_ptr<StepChecks> checks_;  // nullptr: off
  std::optional<AtomicFile> log_;
  std::size_t step_ = 0;
  bool is_stopped_ = false;
  Clock::time_point line_time_;  // when the epoch's last line came, or the epoch began
  std::size_t line_step_ = 0;    // the first step since then
  TrainingResult result_;
};

}  // namespace

TrainingResult run_loop(const TrainingTask& task, const Strategies& strategies,
                        const TrainingObserver& observer) {
  ThreadContext context = thread_context();
  if (task.launching == TrainingTask::Launching::graph) context.issue = Issue::by_caller;
  const ThreadContextScope scope(context);
  return TrainingLoop(task, strategies, observer).run();
}

}  // namespace lockstep::tools

#include "tools/run/step.h"

#include <algorithm>
#include <limits>

#include "engine/core/thread_context.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/span.h"
#include "tools/run/step_checks.h"

namespace lockstep::tools {

TrainingStep::Output TrainingStep::update_weights(std::size_t step, AskedNorm norm) {
  for (const auto& optimizer : optimizers_) optimizer->zero_grad();
  if (checks_ != nullptr) checks_->after_clearing(step);
  Output output;
  for (std::size_t local = 0; local < strategies_.size(); ++local) {
    output.losses.push_back(add_gradients(task_, *strategies_[local], batches_[local]));
  }
  if (task_.optimizer.clip_norm || norm == AskedNorm::yes) {
    output.grad_norm = clip_or_measure_norm();
  }
  for (const auto& optimizer : optimizers_) optimizer->step();
  return output;
}

// All ranks have the same norm.
Tensor TrainingStep::clip_or_measure_norm() const {
  Tensor norm;
  for (const auto& strategy : strategies_) {
    norm = strategy->clip_gradients(
        task_.optimizer.clip_norm.value_or(std::numeric_limits<double>::infinity()));
  }
  return norm;
}

// The steps of an epoch have the same rows but for the last one, whose batch may be smaller: a
// graph for each, over the same tensors, of which the smaller batch is the first rows.
struct TrainingStep::CapturedSteps {
  struct Step {
    runtime::StepGraph graph;
    Output output = {};
  };

  CapturedSteps(const TrainingTask& task, const Strategies& strategies)
      : full{runtime::StepGraph(devices_of(strategies))},
        last{runtime::StepGraph(devices_of(strategies))} {
    for (const auto& strategy : strategies) {
      const std::size_t rows = strategy->rows_of(task.rows_of_full_batch()).size;
      const Device device = strategy->devices()[0];
      x.push_back(Tensor::empty(task.batch_shape(rows), task.batch_dtype(), device));
      labels.push_back(Tensor::empty(task.label_shape(rows), DType::int64, device));
    }
  }

  Step& step_of(const std::vector<data::Batch>& batches) {
    const bool is_full =
        std::ranges::equal(batches, labels, [](const data::Batch& batch, const Tensor& whole) {
          return batch.labels.num_elements() == whole.num_elements();
        });
    return is_full ? full : last;
  }

  // The inputs of the graphs, by local rank.
  std::vector<Tensor> x;       // [rows, features]
  std::vector<Tensor> labels;  // [rows] int64, of a text [rows, tokens]
  Step full;
  Step last;
};

TrainingStep::TrainingStep(const TrainingTask& task, const Strategies& strategies)
    : task_(task), strategies_(strategies) {
  for (const auto& strategy : strategies) {
    optimizers_.push_back(make_optimizer(task, *strategy));
    loaders_.push_back(make_loader(task, *strategy));
  }
  const bool is_graph = task.launching == TrainingTask::Launching::graph;
  if (is_graph) captured_ = std::make_unique<CapturedSteps>(task, strategies);
}

TrainingStep::~TrainingStep() = default;

void TrainingStep::start_epoch(std::size_t epoch) {
  for (const auto& loader : loaders_) loader->start_epoch(epoch);
}

double TrainingStep::learning_rate(std::size_t step) const {
  return task_.optimizer.schedule.learning_rate(task_.optimizer.learning_rate, step);
}

std::optional<TrainingStep::Output> TrainingStep::run(std::size_t step, AskedNorm norm) {
  thread_context().step = step;
  if (!take_batches()) return std::nullopt;
  for (const auto& optimizer : optimizers_) optimizer->set_learning_rate(learning_rate(step));
  return captured_ ? launch(step, norm) : update_weights(step, norm);
}

runtime::Stream& TrainingStep::stream() const {
  return runtime::logical_device(strategies_[0]->devices()[0]).compute_stream();
}

bool TrainingStep::take_batches() {
  trace::ScopedSpan span(trace::Lane::host, trace::Category::data, "next batch");
  runtime::DeviceSpan on_device(stream(), trace::Lane::compute, trace::Category::data,
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

// Once the graph is captured, nothing here but the launch happens on the host.
TrainingStep::Output TrainingStep::launch(std::size_t step, AskedNorm norm) {
  CapturedSteps::Step& captured = captured_->step_of(batches_);
  for (const auto& optimizer : optimizers_) optimizer->write_learning_rate();
  const bool replays = captured.graph.is_captured();
  runtime::DeviceSpan on_device(stream(), trace::Lane::compute, trace::Category::op,
                                "launch graph");
  captured.graph.run([&] { captured.output = update_weights(step, norm); });
  for (const auto& optimizer : optimizers_) {
    if (replays) optimizer->count_replayed_step();
  }
  return captured.output;
}

}  // namespace lockstep::tools

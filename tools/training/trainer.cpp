#include "tools/training/trainer.h"

#include <algorithm>

#include "engine/autograd/grad_mode.h"
#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "engine/nn/mlp.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/counters.h"
#include "engine/trace/recorder.h"
#include "tools/training/busy_fraction.h"
#include "tools/training/captured_ranks.h"
#include "tools/training/rank_loop.h"

namespace lockstep::tools {
namespace {

std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device) {
  const std::shared_ptr<nn::Module> model = nn::make_mlp(task.model, task.seed, task.dtype);
  if (task.initial_weights) nn::load_state_dict(*model, *task.initial_weights);
  model->to(device);
  return model;
}

// A copy of the weights that later runs do not change.
nn::StateDict copy_weights(const nn::Module& model) {
  nn::StateDict copy;
  for (const auto& [name, tensor] : nn::state_dict(model)) {
    copy.emplace_back(name, tensor.to(Device{}).clone());
  }
  return copy;
}

double measure_test_accuracy(const TrainingTask& task, nn::Module& model, Device device) {
  const data::LabelledRows& test = task.data->test;
  if (test.num_rows() == 0) return 0;
  data::SamplerOptions options;
  options.num_samples = test.num_rows();
  options.batch_size = 1024;
  options.shuffle = data::Shuffle::off;
  data::DataLoader loader(
      std::shared_ptr<const data::LabelledRows>(task.data, &test),
      [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
      {device, task.dtype, 4});
  NoGradScope no_grad;
  model.eval();
  std::size_t num_correct = 0;
  while (const std::optional<data::Batch> batch = loader.next()) {
    const Tensor logits = model(Variable(batch->x)).value();
    const Tensor predicted = Tensor::empty(batch->labels.shape(), DType::int64, device);
    logits.backend().argmax_rows(logits.stream(), logits.matrix(), predicted.view());
    const std::vector<std::int64_t> guess = predicted.to_vector<std::int64_t>();
    const std::vector<std::int64_t> truth = batch->labels.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < guess.size(); ++i) num_correct += guess[i] == truth[i];
  }
  model.train();
  return static_cast<double>(num_correct) / static_cast<double>(test.num_rows());
}

void take_results(const TrainingTask& task, const RankModel& model, RankReport report,
                  TrainingResult& result) {
  result.epoch_seconds = std::move(report.epoch_seconds);
  result.final_loss = report.last_epoch_loss;
  result.weights = copy_weights(*model.inner);
  result.test_accuracy = measure_test_accuracy(task, *model.inner, model.devices[0]);
}

void train_in_one_process(const TrainingTask& task, const DevicePlacement& placement,
                          const TrainingObserver& observer, TrainingResult& result) {
  // Spans of the caller belong to the device that holds the parameters.
  trace::TrackScope track(placement.devices[0].index);
  RankModel model;
  model.devices = placement.devices;
  model.inner = make_model(task, placement.devices[0]);
  model.wrapped = model.inner;
  if (placement.mode == Mode::data_parallel) {
    parallel::DataParallelOptions options;
    options.devices = placement.devices;
    model.wrapped = std::make_shared<parallel::DataParallel>(model.inner, options);
  }
  take_results(task, model, run_rank(task, model, observer), result);
}

// One thread for all ranks, so that their step can be one graph.
void train_captured_ranks(const TrainingTask& task, const DevicePlacement& placement,
                          const TrainingObserver& observer, TrainingResult& result) {
  RankModel model;
  model.devices = placement.devices;
  model.inner = make_model(task, placement.devices[0]);
  model.num_ranks = placement.devices.size();
  take_results(task, model, run_captured_ranks(task, model.inner, placement.devices, observer),
               result);
}

void train_ranks(const TrainingTask& task, const DevicePlacement& placement,
                 const TrainingObserver& observer, TrainingResult& result) {
  comm::ThreadGroupOptions group;
  group.timeout_seconds = task.comm_timeout_seconds;
  group.default_plan = task.all_reduce_plan;
  comm::run_ranks(
      static_cast<int>(placement.devices.size()),
      [&](comm::Communicator& communicator) {
        const Device device = placement.devices[static_cast<std::size_t>(communicator.rank())];
        RankModel model;
        model.devices = {device};
        model.inner = make_model(task, device);
        model.communicator = &communicator;
        model.num_ranks = placement.devices.size();
        parallel::DdpOptions options;
        options.reducer.bucket_byte_limits = task.bucket_byte_limits;
        model.wrapped = std::make_shared<parallel::Ddp>(model.inner, communicator, options);
        // Bitwise mode reduces gradients by itself, in a fixed order. Of Ddp it needs the agreement
        // on the model, made by now; without the wrapper gradients stay where they are.
        if (task.summation == Summation::bitwise) model.wrapped = model.inner;
        RankReport report = run_rank(task, model, observer);
        if (communicator.rank() == 0) take_results(task, model, std::move(report), result);
      },
      group);
}

}  // namespace

TrainingResult train(const TrainingTask& task, const DevicePlacement& placement,
                     const TrainingObserver& observer) {
  require(placement.mode != Mode::single || placement.devices.size() == 1, ErrorCode::Usage,
          "train", "{} devices need --parallel dp or ddp", placement.devices.size());
  for (const Device device : placement.devices) {
    runtime::logical_device(device).memory().reset_peak();
  }
  trace::reset_collective_counts();
  TrainingResult result;
  result.num_steps = task.num_steps;
  if (placement.mode == Mode::ddp && task.launching == TrainingTask::Launching::graph) {
    train_captured_ranks(task, placement, observer, result);
  } else if (placement.mode == Mode::ddp) {
    train_ranks(task, placement, observer, result);
  } else {
    train_in_one_process(task, placement, observer, result);
  }
  runtime::record_device_spans();
  const trace::Recording recording = trace::collect();
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    const Device device = placement.devices[i];
    const int track = placement.mode == Mode::ddp ? static_cast<int>(i) : device.index;
    result.peak_bytes.push_back(runtime::logical_device(device).memory().statistics().peak_bytes);
    result.comm_bytes_per_step =
        std::max(result.comm_bytes_per_step, trace::collective_bytes_of(track) / task.num_steps);
    if (recording.spans.empty()) continue;
    if (i == 0) result.breakdown = trace::median_step(recording.spans, track);
    result.busy_fraction.push_back(busy_fraction(recording, track));
  }
  return result;
}

}  // namespace lockstep::tools

#include "tools/training/trainer.h"

#include <algorithm>

#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/counters.h"
#include "engine/trace/recorder.h"
#include "tools/report/waiting_status.h"
#include "tools/training/busy_fraction.h"
#include "tools/training/captured_ranks.h"
#include "tools/training/ddp_rank.h"
#include "tools/training/trained_model.h"

namespace lockstep::tools {
namespace {

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
  group.link = task.link;
  const ShowLateRanks watch;
  comm::run_ranks(
      static_cast<int>(placement.devices.size()),
      [&](comm::Communicator& communicator) {
        const Device device = placement.devices[static_cast<std::size_t>(communicator.rank())];
        train_ddp_rank(task, device, communicator, observer, result);
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
  std::vector<int> tracks;
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    const Device device = placement.devices[i];
    tracks.push_back(placement.mode == Mode::ddp ? static_cast<int>(i) : device.index);
    result.peak_bytes.push_back(runtime::logical_device(device).memory().statistics().peak_bytes);
    if (result.findings && i < result.findings->peak_bytes_before.size()) {
      result.peak_bytes[i] = std::max(result.peak_bytes[i], result.findings->peak_bytes_before[i]);
    }
    result.comm_bytes_per_step = std::max(
        result.comm_bytes_per_step, trace::collective_bytes_of(tracks.back()) / task.num_steps);
  }
  take_times(trace::collect(), tracks, result);
  return result;
}

}  // namespace lockstep::tools

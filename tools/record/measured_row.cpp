#include "tools/record/measured_row.h"

#include <algorithm>

#include "engine/runtime/cpu_use.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "tools/devices/nvidia_smi.h"
#include "tools/record/contention.h"
#include "tools/run/pipeline.h"
#include "tools/run/placement.h"

namespace lockstep::tools {
namespace {

std::vector<std::string> uuids_of(const std::vector<Device>& devices) {
  std::vector<std::string> uuids;
  for (const Device device : devices) {
    if (device.type != DeviceType::cuda) continue;
    const int gpu = runtime::logical_gpus().at(static_cast<std::size_t>(device.index));
    const std::string& uuid = runtime::physical_gpus().at(static_cast<std::size_t>(gpu)).uuid;
    if (std::find(uuids.begin(), uuids.end(), uuid) == uuids.end()) uuids.push_back(uuid);
  }
  return uuids;
}

// Watches the GPUs behind some devices, or the cores of this process. Samples are not taken while
// something is timed.
class ContentionProbe {
 public:
  // Without devices it watches nothing.
  explicit ContentionProbe(const std::vector<Device>& devices) : gpus_(uuids_of(devices)) {
    if (!devices.empty() && devices[0].type == DeviceType::cpu) cores_.emplace();
    sample();
  }

  void sample() {
    gpus_.sample();
    if (cores_) cores_->sample();
  }

  // True if another process used that hardware and so lengthened the row's times; absent if
  // unknown. job: that of the row's ranks; nullptr: they are threads of this process.
  std::optional<bool> verdict(const RunRow& row, const RankJob* job,
                              double cpu_seconds_of_peers) const {
    // nvidia-smi does not know the ranks of one job, so with a shared GPU it cannot tell.
    const bool is_sharing = job && row.physical_devices < row.devices;
    if (!cores_) return is_sharing ? std::nullopt : gpus_.verdict();
    const std::size_t num_sharing = job ? num_ranks_on_cores(job->environment) : row.devices;
    runtime::CoreUse use = cores_->use();
    if (num_sharing > 1) use.own_seconds += cpu_seconds_of_peers;
    return runtime::is_disturbed(
        use, std::min(row.threads_per_device * num_sharing, runtime::num_cores()));
  }

 private:
  GpuContentionProbe gpus_;
  std::optional<runtime::CoreProbe> cores_;
};

// All steps of a run, or of a long one so many, evenly spread, that their spans fit.
trace::RecordOptions record_options(const TrainingTask& task, std::size_t num_devices) {
  constexpr std::size_t kMaxSteps = 16'000;  // steps, each with up to 80 spans and samples
  trace::RecordOptions options;
  options.step_stride = (task.num_steps * num_devices + kMaxSteps - 1) / kMaxSteps;
  return options;
}

}  // namespace

RunRow planned_row(const TrainingTask& task, const DevicePlacement& placement) {
  RunRow row;
  row.mode = to_string(placement.mode);
  row.devices = placement.devices.size();
  row.physical_devices = task.slow_motion ? row.devices : num_physical_devices(placement);
  row.is_on_cores = !task.slow_motion && placement.devices[0].type == DeviceType::cpu;
  row.threads_per_device = runtime::threads_per_device();
  row.batch = task.rows_of_full_batch();
  if (task.pipeline) row.bubble_formula = bubble_formula(*task.pipeline, row.devices);
  row.epoch_rows = std::min(task.data->train.num_rows(), task.num_steps * task.batch);
  return row;
}

MeasuredRow measure_row(const TrainingTask& task, const DevicePlacement& placement,
                        TrainingObserver observer, Recorded recorded, RankJob* job) {
  const std::vector<Device> devices = own_devices(placement, job);
  if (recorded == Recorded::yes) trace::start(record_options(task, devices.size()));
  const bool is_first = !job || job->is_first();
  ContentionProbe probe(is_first ? devices : std::vector<Device>{});
  observer.on_epoch = [&probe, tell = std::move(observer.on_epoch)](std::size_t epoch,
                                                                    double seconds, double loss) {
    probe.sample();
    if (tell) tell(epoch, seconds, loss);
  };
  Run run = train(task, placement, observer, job);
  MeasuredRow measured{{}, std::move(run.placement), std::move(run.recording)};
  RunRow& row = measured.row;
  if (is_first) row = planned_row(task, measured.placement);
  row.take_result(std::move(run.result));
  row.compare_with(row, runtime::num_cores());
  if (row.result.simulated) {
    row.contended = row.result.simulated->lag > kNotableLag;
  } else if (is_first) {
    row.contended = probe.verdict(row, job, run.cpu_seconds_of_peers);
  }
  return measured;
}

}  // namespace lockstep::tools

#include "tools/report/trace_file.h"

#include <fmt/format.h>

#include "engine/core/log.h"
#include "engine/trace/chrome_trace.h"
#include "engine/trace/kineto_trace.h"

namespace lockstep::tools {
namespace {

// Which Span::rank a device's spans have: ranks are numbered, the devices of one process are named.
int track_of(const DevicePlacement& placement, std::size_t i) {
  return placement.mode == Mode::ddp ? static_cast<int>(i) : placement.devices[i].index;
}

trace::KinetoOptions kineto_options(const TrainingFlags& flags, const DevicePlacement& placement) {
  trace::KinetoOptions options;
  options.world_size = placement.devices.size();
  if (!flags.comm.empty() && flags.comm != "own") options.backend = flags.comm;
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    const auto track = static_cast<std::size_t>(track_of(placement, i));
    if (options.device_names.size() <= track) options.device_names.resize(track + 1);
    options.device_names[track] = lockstep::to_string(placement.devices[i]);
  }
  return options;
}

trace::ChromeTraceOptions chrome_options(const DevicePlacement& placement) {
  trace::ChromeTraceOptions options;
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    const std::string device = lockstep::to_string(placement.devices[i]);
    options.process_names[track_of(placement, i)] = placement.mode == Mode::ddp
                                                        ? fmt::format("rank {} on {}", i, device)
                                                        : fmt::format("device {}", device);
  }
  return options;
}

}  // namespace

void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording) {
  if (recording.num_dropped > 0) {
    log_warning("the trace keeps the first {} spans; {} later ones did not fit",
                recording.spans.size(), recording.num_dropped);
  }
  if (flags.trace_format == "kineto") {
    trace::save_kineto_traces(flags.trace_path, recording, kineto_options(flags, placement));
  } else {
    trace::save_chrome_trace(flags.trace_path, recording, chrome_options(placement));
  }
}

std::string describe_trace(const TrainingFlags& flags, const DevicePlacement& placement) {
  if (flags.trace_format != "kineto") {
    return fmt::format("trace: {}; open it in https://ui.perfetto.dev\n", flags.trace_path);
  }
  const std::filesystem::path first = trace::kineto_path(flags.trace_path, track_of(placement, 0));
  const std::string folder = first.has_parent_path() ? first.parent_path().string() : ".";
  const std::size_t num_others = placement.devices.size() - 1;
  return fmt::format(
      "trace: {}{}; for https://ui.perfetto.dev,\n"
      "tensorboard --logdir {} (torch-tb-profiler) and HTA's TraceAnalysis(trace_dir=\"{}\")\n",
      first.string(), num_others == 0 ? "" : fmt::format(" and {} more, one per rank", num_others),
      folder, folder);
}

}  // namespace lockstep::tools

#include "tools/report/trace_file.h"

#include <fmt/format.h>

#include "engine/core/log.h"
#include "engine/trace/chrome_trace.h"
#include "engine/trace/kineto_trace.h"

namespace lockstep::tools {

void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording) {
  if (recording.num_dropped > 0) {
    log_warning("the trace keeps the first {} spans; {} later ones did not fit",
                recording.spans.size(), recording.num_dropped);
  }
  if (flags.trace_format == "kineto") {
    trace::KinetoOptions options;
    options.world_size = placement.devices.size();
    trace::save_kineto_traces(flags.trace_path, recording, options);
    return;
  }
  trace::ChromeTraceOptions options;
  for (std::size_t i = 0; i < placement.devices.size(); ++i) {
    const Device device = placement.devices[i];
    if (placement.mode == Mode::ddp) {
      options.process_names[static_cast<int>(i)] =
          fmt::format("rank {} on {}", i, lockstep::to_string(device));
    } else {
      options.process_names[device.index] = fmt::format("device {}", lockstep::to_string(device));
    }
  }
  trace::save_chrome_trace(flags.trace_path, recording, options);
}

}  // namespace lockstep::tools

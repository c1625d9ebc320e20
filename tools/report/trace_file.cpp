#include "tools/report/trace_file.h"

#include <fmt/format.h>

#include "engine/core/log.h"
#include "engine/trace/chrome_trace.h"

namespace lockstep::tools {
namespace {

// Which Span::rank a device's spans have: ranks are numbered, the devices of one process are named.
int track_of(const DevicePlacement& placement, std::size_t i) {
  return placement.mode == Mode::ddp ? static_cast<int>(i) : placement.devices[i].index;
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
  trace::save_chrome_trace(flags.trace_path, recording, chrome_options(placement));
}

std::string describe_trace(const TrainingFlags& flags) {
  return fmt::format("trace: {}; open it in https://ui.perfetto.dev\n", flags.trace_path);
}

}  // namespace lockstep::tools

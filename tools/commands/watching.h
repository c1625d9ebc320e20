// Functions that `watch` and `train --watch` share: who can be watched, and how a recording is
// called.
#pragma once

#include <string>

#include "tools/run/placement.h"
#include "tools/watch/page.h"
#include "tools/watch/recorder.h"

namespace lockstep::tools {

inline constexpr int kMostWatched = 8;  // devices on a page

// Throws Error{Usage} that says what can be watched instead, for GPUs, processes, graphs, --bitwise
// and too many devices. flag: of the caller.
void require_watchable(const TrainingFlags& flags, DeviceType type, std::size_t num_devices,
                       std::string_view flag);

// Throws Error{Usage} if a page of these recordings would have more than 20 MB, with how to shorten
// it. It is an estimate from the model's parameters, made before anything is trained.
void require_short(const TrainingTask& task, const DevicePlacement& placement,
                   watch::Numbers numbers);

// The recorded step under the name of its mode.
watch::PageRecording recorded(const TrainingTask& task, const DevicePlacement& placement,
                              watch::Recorder& recorder);

// Writes the page, and says so on the stream.
void write_watch_page(const std::string& path, const std::vector<watch::PageRecording>& recordings,
                      std::FILE* out);

}  // namespace lockstep::tools

// Recordings: the file of --trace, and bytes on the way between ranks that are processes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/recorder.h"
#include "tools/training/placement.h"

namespace lockstep::tools {

// Writes a recording, with all ranks, as a Chrome trace; says on stderr if it was too long to be
// kept whole. Where ranks are processes, rank 0 has brought their spans together and writes them.
void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording);

// A line for stderr: what write_trace() has written, and what opens it.
std::string describe_trace(const TrainingFlags& flags);

// For another process of the same program on a machine of the same byte order.
std::string pack_recording(const trace::Recording& recording);

// The reverse. Throws Error{Io} when the bytes are not a whole recording.
trace::Recording unpack_recording(std::string_view bytes);

// All of them as one, in the order that trace::Recording promises, with threads numbered anew.
trace::Recording merge_recordings(std::vector<trace::Recording> recordings);

inline constexpr char kPredictedStep[] = "predicted step";  // the span of each device's step
inline constexpr std::size_t kMostPredictedDevices = 8;     // of which lanes are written

}  // namespace lockstep::tools

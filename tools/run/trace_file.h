// Recordings: the file of --trace, and their bytes on the way between ranks that are processes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/recorder.h"
#include "tools/run/placement.h"

namespace lockstep::tools {

// Writes a recording of all ranks as a Chrome trace; says on stderr if it was too long to be kept
// whole. If ranks are processes, rank 0 has collected their spans and writes them.
void write_trace(const TrainingFlags& flags, const DevicePlacement& placement,
                 const trace::Recording& recording);

// A line for stderr that names the file of write_trace() and the program that opens it.
std::string describe_trace(const TrainingFlags& flags);

// Packs it for another process of this program on a machine of the same byte order.
std::string pack_recording(const trace::Recording& recording);

// The reverse of pack_recording(). Throws Error{Io} if the bytes are not a whole recording.
trace::Recording unpack_recording(std::string_view bytes);

// Merges them into one, in the order that trace::Recording promises, with threads renumbered.
trace::Recording merge_recordings(std::vector<trace::Recording> recordings);

inline constexpr char kPredictedStep[] = "predicted step";  // the span of each device's step
inline constexpr std::size_t kMostPredictedDevices = 8;     // whose lanes are written

}  // namespace lockstep::tools

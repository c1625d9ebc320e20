// Recordings of several processes: as bytes on the way, and as one at the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/trace/recorder.h"

namespace lockstep::tools {

// For another process of the same program on a machine of the same byte order.
std::string pack_recording(const trace::Recording& recording);

// The reverse. Throws Error{Io} when the bytes are not a whole recording.
trace::Recording unpack_recording(std::string_view bytes);

// All of them as one, in the order that trace::Recording promises.
trace::Recording merge_recordings(std::vector<trace::Recording> recordings);

}  // namespace lockstep::tools

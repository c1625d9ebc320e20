// How long a captured step lasts: what was recorded into it is in use until it is gone.
#pragma once

#include <memory>

namespace lockstep::runtime::cuda {

// Owned by the capture, then by the graph it became. Events that were recorded meanwhile watch it.
struct CaptureLife {};

// Of the capture that the calling thread is inside of; nullptr outside.
std::shared_ptr<const CaptureLife>& current_capture();

}  // namespace lockstep::runtime::cuda

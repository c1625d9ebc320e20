// A second stream beside a device's own, for what can run at the same time in a captured step.
//
// In a graph a fork and a join are dependencies and cost nothing when it is launched; outside of
// one they are four more calls, which take longer than a small product. So only captures fork.
#pragma once

#include "engine/runtime/stream.h"

namespace lockstep::kernels::cuda {

// A stream of the same device that nobody else uses, always the same for this one, where this
// thread captures it into a step's graph; else nullptr. Never destroyed.
runtime::Stream* side_stream(runtime::Stream& stream);

}  // namespace lockstep::kernels::cuda

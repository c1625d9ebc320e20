// Slow motion's half of the seam to a device: every kernel runs as another backend runs it, and is
// over when it would have been on the device that is acted out (machine.h). What it costs there
// stands in simulate/predict/kernel_cost.h. Results are the other backend's.
#pragma once

#include "kernels/backend.h"

namespace lockstep::slow_motion {

using namespace kernels;  // the seam's types

class PacedBackend final : public Backend {
 public:
  // inner outlives this. REQUIRES: while it is used, a machine is on stage (machine()).
  explicit PacedBackend(Backend& inner) : inner_(inner) {}

#include "kernels/backend_overrides.inc"

 private:
  Backend& inner_;
};

}  // namespace lockstep::slow_motion

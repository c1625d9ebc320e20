// A backend for slow motion: another backend runs every kernel, and the kernel ends when it would
// have ended on the device that is acted out (machine.h), at the cost of
// simulate/predict/kernel_cost.h. Results are the other backend's.
#pragma once

#include "kernels/backend.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/slow_motion/machine.h"

namespace lockstep::slow_motion {

using namespace kernels;  // the interface's types

class PacedBackend final : public Backend {
 public:
  // inner must outlive this. REQUIRES: while it is used, a machine is on stage (machine()).
  explicit PacedBackend(Backend& inner) : inner_(inner) {}

#include "kernels/backend_overrides.inc"

 private:
  // Runs inner_'s kernel with these arguments, as long as the traffic of what it reads and writes.
  template <typename... Parameters, typename... Arguments>
  void run(const char* name, void (Backend::*kernel)(Stream&, Parameters...), Stream& stream,
           const Arguments&... arguments);

  Backend& inner_;
};

}  // namespace lockstep::slow_motion

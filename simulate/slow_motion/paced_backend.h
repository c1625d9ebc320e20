// Slow motion's half of the seam to a device: every kernel runs as another backend runs it, and is
// over when it would have been on the device that is acted out (machine.h). What it costs there
// stands in simulate/predict/kernel_cost.h. Results are the other backend's.
//
// What a kernel does, whatever the device, it can also tell a listener, which acts nothing out.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "kernels/backend.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/slow_motion/machine.h"

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

// A kernel by its sizes.
struct KernelSizes {
  std::span<const Memory> reads;
  std::span<const Memory> writes;
  std::optional<predict::LayerShape> product = {};  // of a layer
  // Of any other kernel; 0 where the predictor counts it with another, as an activation's gradient.
  double traffic_bytes = 0;
  std::size_t scratch_bytes = 0;  // of patches
};

class KernelListener {
 public:
  virtual ~KernelListener() = default;
  // The kernel has been issued to the stream.
  virtual void on_kernel(Stream& stream, const KernelSizes& kernel) = 0;
};

namespace detail {
inline std::atomic<KernelListener*> listener{nullptr};
}

// Tells a listener, for a scope, of the kernels of a device type, which run as ever.
// REQUIRES: as kernels::set_backend(), and that no machine is on stage.
class Listening {
 public:
  Listening(DeviceType type, KernelListener& listener);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  DeviceType type_;
  PacedBackend backend_;
};

}  // namespace lockstep::slow_motion

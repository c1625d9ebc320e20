// A backend for slow motion: another backend runs every kernel, and the kernel ends when it would
// have ended on the simulated device (machine.h), at the cost of simulate/predict/kernel_cost.h.
// Results are the other backend's.
//
// Without a machine, it can also report the kernels of any device to a listener.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "kernels/backend.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/slow_motion/machine.h"

namespace lockstep::slow_motion {

using namespace kernels;  // the interface's types

class PacedBackend final : public Backend {
 public:
  // inner must outlive this. REQUIRES: while it is used, a machine is installed (machine()).
  explicit PacedBackend(Backend& inner) : inner_(inner) {}

  LOCKSTEP_KERNELS(LOCKSTEP_OVERRIDE)
  std::size_t conv_scratch(const Windows& windows) const override;

 private:
  Backend& inner_;
};

// A kernel by its sizes.
struct KernelSizes {
  const char* name;
  std::span<const Memory> reads;
  std::span<const Memory> writes;
  std::optional<predict::LayerShape> product = {};  // the layer whose product this is
  double num_products = 0;                          // of that shape
  double moved_bytes = 0;                           // what it reads and writes, each once
  // Traffic of any other kernel; 0 if the predictor counts it with another one, as an activation's
  // gradient.
  double traffic_bytes = 0;
  std::size_t scratch_bytes = 0;  // memory of the patches
};

class KernelListener {
 public:
  virtual ~KernelListener() = default;
  // False: kernels are reported and do nothing, so results are arbitrary. Rows are gathered and
  // labels copied all the same.
  virtual bool runs_kernels() const { return true; }
  // Called after the kernel has been issued to the stream.
  virtual void on_kernel(Stream& stream, const KernelSizes& kernel) = 0;
};

namespace detail {
inline std::atomic<KernelListener*> listener{nullptr};
}

// For a scope, tells a listener of the kernels of a device type.
// REQUIRES: as kernels::set_backend(), and that no machine is installed.
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

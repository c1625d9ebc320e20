// Scalars that are written once.
#include <map>
#include <mutex>
#include <tuple>

#include "engine/runtime/stream.h"
#include "engine/tensor/tensor.h"

namespace lockstep {

// It is not cached while a step is captured, because a graph's writes only happen at a launch.
Tensor Tensor::cached_scalar(double value, DType dtype, Device device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& scalars = *new std::map<std::tuple<Device, DType, double>, Tensor>;
  const std::lock_guard lock(mutex);
  const std::tuple key(device, dtype, value);
  const auto found = scalars.find(key);
  if (found != scalars.end()) return found->second;
  const Tensor scalar = full({}, value, dtype, device);
  if (!runtime::is_capturing_step()) scalars.emplace(key, scalar);
  return scalar;
}

}  // namespace lockstep

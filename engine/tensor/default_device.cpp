#include "engine/tensor/default_device.h"

#include <atomic>

#include "engine/runtime/logical_device.h"

namespace lockstep {
namespace {

std::atomic<Device>& chosen() {
  static std::atomic<Device> device{Device{}};
  return device;
}

}  // namespace

Device default_device() {
  return chosen().load(std::memory_order_relaxed);
}

void set_default_device(Device device) {
  runtime::logical_device(device);  // fails where there is none
  chosen().store(device, std::memory_order_relaxed);
}

}  // namespace lockstep

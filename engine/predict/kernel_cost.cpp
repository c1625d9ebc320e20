#include "engine/predict/kernel_cost.h"

#include <algorithm>

namespace lockstep::predict {
namespace {

constexpr double kUpdatePasses = 5;

double read_seconds(const DeviceProfile& device, double num_bytes) {
  return num_bytes / (kTrafficEfficiency * device.memory_bytes_per_second);
}

}  // namespace

double product_seconds(const DeviceProfile& device, double rows, double parameter_bytes,
                       std::size_t element_size) {
  const double arithmetic = 2 * rows * parameter_bytes / static_cast<double>(element_size) /
                            (kArithmeticEfficiency * device.flops_per_second);
  return std::max(arithmetic, read_seconds(device, parameter_bytes)) + device.launch_seconds;
}

double traffic_seconds(const DeviceProfile& device, double num_bytes) {
  return read_seconds(device, num_bytes) + device.launch_seconds;
}

double update_seconds(const DeviceProfile& device, double parameter_bytes) {
  return traffic_seconds(device, kUpdatePasses * parameter_bytes);
}

}  // namespace lockstep::predict

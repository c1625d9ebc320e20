#include "simulate/predict/kernel_cost.h"

#include <algorithm>
#include <utility>

namespace lockstep::predict {
namespace {

double read_seconds(const DeviceProfile& device, double num_bytes) {
  return num_bytes / (kTrafficEfficiency * device.memory_bytes_per_second);
}

double product_seconds(const DeviceProfile& device, const LayerShape& layer) {
  const double parameters = (layer.inputs + 1) * layer.outputs;
  const double arithmetic =
      2 * layer.rows * parameters / (kArithmeticEfficiency * device.flops_per_second);
  const double bytes = layer.parameter_bytes() + layer.image_bytes;
  return std::max(arithmetic, read_seconds(device, bytes)) + device.launch_seconds;
}

}  // namespace

double forward_seconds(const DeviceProfile& device, const LayerShape& layer) {
  return product_seconds(device, layer);
}

double backward_seconds(const DeviceProfile& device, const LayerShape& layer, InputGradient input) {
  const int num_products = input == InputGradient::not_needed ? 1 : 2;
  return num_products * product_seconds(device, layer);
}

LayerWork dense_layer(const DeviceProfile& device, std::string name, const LayerShape& layer,
                      InputGradient input) {
  const double outputs = layer.outputs * sizeof(float);
  return {std::move(name),
          forward_seconds(device, layer),
          backward_seconds(device, layer, input),
          {static_cast<std::size_t>(layer.inputs * outputs), static_cast<std::size_t>(outputs)},
          layer.rows * outputs};
}

double traffic_seconds(const DeviceProfile& device, double num_bytes) {
  return read_seconds(device, num_bytes) + device.launch_seconds;
}

double update_seconds(const DeviceProfile& device, double parameter_bytes) {
  return traffic_seconds(device, kUpdatePasses * parameter_bytes);
}

}  // namespace lockstep::predict

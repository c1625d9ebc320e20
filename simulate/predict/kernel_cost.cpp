#include "simulate/predict/kernel_cost.h"

#include <algorithm>
#include <utility>

namespace lockstep::predict {
namespace {

constexpr double kUpdatePasses = 5;

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

double measured_seconds(const LayerGrid& grid, const LayerShape& layer) {
  return grid.at(layer.rows, layer.inputs, layer.outputs);
}

// The entry for so many devices, or for the largest measured number if that is smaller.
template <typename T>
const T& of_devices(const std::vector<T>& by_devices, std::size_t num_devices) {
  return by_devices[std::clamp<std::size_t>(num_devices, 1, by_devices.size()) - 1];
}

}  // namespace

double forward_seconds(const DeviceProfile& device, const LayerShape& layer) {
  if (device.measured) return measured_seconds(device.measured->forward, layer);
  return product_seconds(device, layer);
}

double backward_seconds(const DeviceProfile& device, const LayerShape& layer, InputGradient input) {
  const bool is_first = input == InputGradient::not_needed;
  if (!device.measured) return (is_first ? 1 : 2) * product_seconds(device, layer);
  return measured_seconds(is_first ? device.measured->weights_backward : device.measured->backward,
                          layer);
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
  if (device.measured) return device.measured->traffic.front().at(num_bytes);
  return read_seconds(device, num_bytes) + device.launch_seconds;
}

double update_bytes(double parameter_bytes) {
  return kUpdatePasses * parameter_bytes;
}

double update_seconds(const DeviceProfile& device, double parameter_bytes) {
  return traffic_seconds(device, update_bytes(parameter_bytes));
}

LossSeconds loss_seconds(const DeviceProfile& device, double rows, double classes) {
  if (!device.measured) return {device.launch_seconds, device.launch_seconds};
  const double bytes = rows * classes * sizeof(float);
  return {device.measured->loss_forward.at(bytes), device.measured->loss_backward.at(bytes)};
}

double batch_seconds(const DeviceProfile& device, double num_bytes) {
  return device.measured ? device.measured->batch.at(num_bytes) : 0;
}

double layers_beside(const DeviceProfile& device, std::size_t num_devices) {
  return device.measured ? of_devices(device.measured->layers_beside, num_devices) : 1;
}

double traffic_beside(const DeviceProfile& device, std::size_t num_devices, double num_bytes) {
  if (!device.measured) return 1;
  const std::vector<Curve>& traffic = device.measured->traffic;
  return of_devices(traffic, num_devices).at(num_bytes) / traffic.front().at(num_bytes);
}

double update_seconds_beside(const DeviceProfile& device, std::size_t num_devices,
                             double parameter_bytes, double seconds_alone) {
  const double bytes = update_bytes(parameter_bytes);
  const double alone = traffic_seconds(device, bytes);
  const double together = alone * traffic_beside(device, num_devices, bytes);
  return seconds_alone * std::max(1.0, together / std::max(alone, seconds_alone));
}

}  // namespace lockstep::predict

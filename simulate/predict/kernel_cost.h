// The time of a kernel on a device. On a measured one (lockstep calibrate) it is the measured time.
// Else it is the arithmetic or the memory traffic, whichever takes longer, at these shares of the
// device's peak, plus the launch. The shares are usual for cuBLAS and for element-wise kernels.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"

namespace lockstep::predict {

inline constexpr double kArithmeticEfficiency = 0.7;
inline constexpr double kTrafficEfficiency = 0.75;

// The sizes of a layer in a step: a dense one, or a convolution, whose rows are output pixels and
// whose inputs are a patch.
struct LayerShape {
  double rows = 0;
  double inputs = 0;
  double outputs = 0;
  std::size_t element_size = sizeof(float);
  double image_bytes = 0;  // of a convolution: its images, in and out

  double parameter_bytes() const {  // of weights and bias
    return (inputs + 1) * outputs * static_cast<double>(element_size);
  }
};

// A first layer's input needs no gradient.
enum class InputGradient { needed, not_needed };

// From a data sheet, a layer is one product forward and one for each gradient backward, of 2 * rows
// * parameters operations, which reads its parameters once, and a convolution's images.
double forward_seconds(const DeviceProfile& device, const LayerShape& layer);
double backward_seconds(const DeviceProfile& device, const LayerShape& layer, InputGradient input);

// Both passes, of float32, with the layer's gradients.
LayerWork dense_layer(const DeviceProfile& device, std::string name, const LayerShape& layer,
                      InputGradient input);

// Any other kernel, by the bytes that it reads and writes.
double traffic_seconds(const DeviceProfile& device, double num_bytes);

// An attention has two products forward, and five backward.
inline constexpr double kAttentionBackward = 2.5;

// The bytes that an optimizer reads and writes for so many bytes of parameters: weight, gradient
// and momentum, then weight and momentum.
double update_bytes(double parameter_bytes);
double update_seconds(const DeviceProfile& device, double parameter_bytes);

// The times of cross-entropy over rows of classes; on GPUs one launch each.
struct LossSeconds {
  double forward = 0;
  double backward = 0;
};
LossSeconds loss_seconds(const DeviceProfile& device, double rows, double classes);

// The time to take a batch's rows out of the data set: zero on GPUs, for which it is there when it
// is needed.
double batch_seconds(const DeviceProfile& device, double num_bytes);

// How many times as long a layer, and any other kernel of so many bytes, takes while so many
// devices do the same: 1 on GPUs, which share nothing that kernels wait for. CPU devices share
// caches, from which they evict each other's data if all of them together need more space.
double layers_beside(const DeviceProfile& device, std::size_t num_devices);
double traffic_beside(const DeviceProfile& device, std::size_t num_devices, double num_bytes);

// The time of an update of so many bytes of parameters while so many devices work, given its time
// on one device alone. In a step that one may have missed its caches already: what all of them miss
// counts only once.
double update_seconds_beside(const DeviceProfile& device, std::size_t num_devices,
                             double parameter_bytes, double seconds_alone);

}  // namespace lockstep::predict

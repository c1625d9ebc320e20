// The time of a kernel on a device: the arithmetic or the memory traffic, whichever takes longer,
// at these shares of the device's peak, plus the launch. The shares are usual for cuBLAS and for
// element-wise kernels.
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
  double image_bytes = 0;  // a convolution's images, in and out

  double parameter_bytes() const {  // weights and bias
    return (inputs + 1) * outputs * static_cast<double>(element_size);
  }
};

// A first layer's input needs no gradient.
enum class InputGradient { needed, not_needed };

// A layer is one product forward and one for each gradient backward, of 2 * rows * parameters
// operations, which reads its parameters once, and a convolution's images.
double forward_seconds(const DeviceProfile& device, const LayerShape& layer);
double backward_seconds(const DeviceProfile& device, const LayerShape& layer, InputGradient input);

// Both passes, of float32, with the layer's gradients.
LayerWork dense_layer(const DeviceProfile& device, std::string name, const LayerShape& layer,
                      InputGradient input);

// Any other kernel, by the bytes that it reads and writes.
double traffic_seconds(const DeviceProfile& device, double num_bytes);

// An attention has two products forward, and five backward.
inline constexpr double kAttentionBackward = 2.5;

// An optimizer reads weight, gradient and momentum, and writes weight and momentum.
inline constexpr double kUpdatePasses = 5;
double update_seconds(const DeviceProfile& device, double parameter_bytes);

}  // namespace lockstep::predict

// What a kernel takes on a device that was not measured: its arithmetic or its memory traffic,
// whichever is longer, at these shares of the device's peak, and its launch. The shares are usual
// for cuBLAS and for element-wise kernels.
#pragma once

#include <cstddef>

#include "engine/predict/topology.h"

namespace lockstep::predict {

inline constexpr double kArithmeticEfficiency = 0.7;
inline constexpr double kTrafficEfficiency = 0.75;

// A layer's product of `rows` rows with its parameters, each read once: 2 * rows * parameters
// operations. The gradients of its input and of its weights are such products, too.
double product_seconds(const DeviceProfile& device, double rows, double parameter_bytes,
                       std::size_t element_size = sizeof(float));

// Any other kernel, by the bytes that it reads and writes.
double traffic_seconds(const DeviceProfile& device, double num_bytes);

// An optimizer's, by the bytes of the parameters: reads weight, gradient and momentum, writes
// weight and momentum.
double update_seconds(const DeviceProfile& device, double parameter_bytes);

}  // namespace lockstep::predict

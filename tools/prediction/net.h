// A net that is known by its size: what `lockstep predict --params` and `--model` start from.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"

namespace lockstep::tools {

// A layer's weights and biases, and its share of the net's work in any unit.
struct LayerShape {
  std::string name;
  double weights = 0;
  double biases = 0;
  double work = 0;
};

enum class Precision { fp32, tf32, bf16 };

struct Net {
  std::string name;
  double parameters = 0;                // trained; each has a float32 gradient
  double forward_flops = 0;             // of a sample, a multiply-add counted as two; 0: not known
  std::vector<LayerShape> shapes = {};  // empty: not known
  std::size_t batch_per_gpu = 1;
  std::optional<double> step_seconds = {};  // of that batch on one GPU; empty: guessed
  Precision precision = Precision::fp32;    // of the guess

  double gradient_bytes() const { return 4 * parameters; }
};

// A net of the table in net.cpp, or a multilayer perceptron "mlp:784-1024-10".
// Throws Error{Usage} that lists the names.
Net find_net(const std::string& name);

// "lenet, alexnet, ...".
std::string known_net_names();

// The data sheet's peak without sparsity. Throws Error{Usage} where none is known.
double peak_flops(const predict::DeviceProfile& device, Precision precision);

// A third forward, two thirds backward, at 30 % of the peak; and the optimizer's memory traffic.
// REQUIRES: forward_flops are known.
inline constexpr double kGuessedEfficiency = 0.3;  // assumed: docs/prediction.md
double guessed_step_seconds(const Net& net, const predict::DeviceProfile& device);

// What one device does in a step of `rows` samples. REQUIRES: step_seconds is there.
// The optimizer takes what its memory traffic does. If the net has dense layers alone (at most 2.5
// operations a parameter and sample) the arithmetic at 80 % of float32's peak grows with the rows,
// and the rest of the step is a fixed cost; else all of the step but the optimizer grows with them.
// A net without shapes has 54 layers of three tensors whose bytes double four times from the first
// to the last, with equal work (ResNet's stages), or with less than 30 operations a parameter three
// large tensors behind the others, as AlexNet has.
predict::Workload net_workload(const Net& net, const predict::DeviceProfile& device, double rows);

}  // namespace lockstep::tools

// A net of which only the size is known: `lockstep predict --params` and `--model` start from it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulate/predict/memory.h"
#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"

namespace lockstep::tools {

// A layer's weights and biases, and its share of the net's work in any unit.
struct LayerShape {
  std::string name;
  double weights = 0;
  double biases = 0;
  double work = 0;
  double outputs = 0;  // values of a sample that the next layer takes; 0: a pipeline isn't cut here
};

enum class Precision { fp32, tf32, bf16 };

struct Net {
  std::string name;
  double parameters = 0;     // trained; each has a float32 gradient
  double forward_flops = 0;  // for one sample, with a multiply-add counted as two; 0: unknown
  std::vector<LayerShape> shapes = {};  // empty: unknown
  double forward_passes = 3;  // that a step takes as long as; 4 if backward computes one again
  std::size_t batch_per_gpu = 1;
  std::optional<double> step_seconds = {};        // for that batch on one GPU; empty: guessed
  Precision precision = Precision::fp32;          // of the guess, and of what is kept in memory
  std::optional<predict::NetMemory> memory = {};  // empty: its activations are unknown
  double tensors = 0;                             // of parameters; 0: as many as the shapes have
  std::optional<double> host_seconds = {};        // of launching a forward pass; empty: guessed
  std::string source = {};  // where step_seconds are from; empty: given by the user

  double gradient_bytes() const { return 4 * parameters; }
};

// Finds a net in the table of net.cpp, or makes a multilayer perceptron from "mlp:784-1024-10".
// Throws Error{Usage} that lists the names.
Net find_net(const std::string& name);

// Blocks of attention and a feed-forward net four times as wide, after an embedding. The last layer
// shares the embedding's weights, so that their gradient is ready last.
std::vector<LayerShape> transformer_shapes(int blocks, double width, double context,
                                           double vocabulary);

// "lenet, alexnet, ...".
std::string known_net_names();

// The data sheet's peak without sparsity (run/data_sheet.h), in proportion to the profile's.
// Throws Error{Usage} if its table lacks the device.
double peak_flops(const predict::DeviceProfile& device, Precision precision);

// Guesses a step: forward_passes at 30 % of the peak, and the optimizer's memory traffic. REQUIRES:
// forward_flops are known.
inline constexpr double kGuessedEfficiency = 0.3;  // assumed: docs/prediction.md
double guessed_step_seconds(const Net& net, const predict::DeviceProfile& device);

// The net with step_seconds: its own, else the guess times a factor.
Net with_step(Net net, const predict::DeviceProfile& device, double guess = 1);

// PyTorch's DataParallel takes so much of its interpreter. If it isn't known how long a forward
// pass takes to launch: 83 us for each tensor of parameters, as 13.3 ms for ResNet-50's 161
// (pytorch/benchmark #668, beside a V100); at most half of a step, for the backward pass launches
// as many kernels. A replica takes half of that again: 12 us a tensor to copy its module (measured
// with PyTorch 1.13 on one core of a Xeon), and 10 to pack each parameter, statistic and gradient
// (30 ms for 3000 tensors and one other GPU: pytorch #3930). REQUIRES: step_seconds is set.
inline constexpr double kHostSecondsPerTensor = 13.3e-3 / 161;
inline constexpr double kCopyShare = 0.5;
predict::PythonHost python_host(const Net& net);

// The work of one device in a step of `rows` samples. REQUIRES: step_seconds is set.
// The optimizer takes the time of its memory traffic. If the net has only dense layers (at most 2.5
// operations per parameter and sample), its arithmetic at 80 % of float32's peak grows with the
// rows, and the rest of the step is a fixed cost; else all of the step but the optimizer grows with
// the rows.
// A net without shapes gets 54 layers of three tensors with equal work, whose bytes double four
// times from the first to the last (ResNet's stages). With less than 30 operations per parameter it
// gets three more large tensors at the end, as in AlexNet.
predict::Workload net_workload(const Net& net, const predict::DeviceProfile& device, double rows);

// The same with layers joined up to the next one whose outputs are known: what a pipeline may cut.
// Their outputs travel in 16 bits if the net's precision is bf16. REQUIRES: can_be_cut(net).
predict::Workload pipeline_workload(const Net& net, const predict::DeviceProfile& device,
                                    double rows);
// The layers of pipeline_workload(). Throws Error{Usage} if no layer's outputs are known.
std::size_t num_pipeline_layers(const Net& net);

}  // namespace lockstep::tools

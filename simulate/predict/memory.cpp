#include "simulate/predict/memory.h"

#include <algorithm>
#include <cmath>

namespace lockstep::predict {

Kept kept_of_layer(const TransformerShape& shape, Recompute recompute,
                   const TensorParallel& tensor) {
  const double tokens_channels = shape.context * shape.channels;
  if (recompute == Recompute::full) return {tokens_channels, 0};
  const double scores = shape.heads * shape.context * shape.context;
  // Each device has what all do alike, and its part of what they share.
  const double alike = tensor.shares_sequence ? tensor.devices : 1;
  Kept kept{tokens_channels * (4 / alike + 12 / tensor.devices), 0};
  if (shape.has_dropout) kept.bytes = tokens_channels * 2 / alike;
  if (recompute == Recompute::attention) return kept;
  // Softmax's outputs, and dropout's, if there is one.
  kept.values += (shape.has_dropout ? 2 : 1) * scores / tensor.devices;
  if (shape.has_dropout) kept.bytes += scores / tensor.devices;
  return kept;
}

namespace {

// A pipeline's first stage keeps this of a batch that passes through all stages: the activations of
// its part of the model, of the micro-batches that wait for their backward pass. 1: no pipeline.
double kept_share(const MemoryOptions& options) {
  if (options.strategy != Strategy::pipeline || options.num_devices < 2) return 1;
  const auto stages = static_cast<double>(options.num_devices);
  const auto micro_batches = static_cast<double>(options.num_micro_batches);
  const bool keeps_all = options.schedule == plan::PipelineSchedule::gpipe;
  return (keeps_all ? micro_batches : std::min(micro_batches, stages)) / micro_batches / stages;
}

}  // namespace

DeviceMemory device_memory(const NetMemory& net, const MemoryOptions& options) {
  const bool is_mixed = options.numbers == Numbers::mixed;
  const double value_bytes = is_mixed ? 2 : 4;
  const double moments = options.optimizer == StateOptimizer::adam ? 8 : 4;
  const double weights = net.parameters * value_bytes;
  DeviceMemory memory{weights, weights, net.parameters * (is_mixed ? 4 + moments : moments)};
  memory.activations = (net.kept_values * value_bytes + net.kept_bytes) *
                       static_cast<double>(options.batch) * kept_share(options);
  const auto devices = static_cast<double>(options.num_devices);
  const Strategy strategy = options.num_devices > 1 ? options.strategy : Strategy::single;
  const bool is_third = strategy == Strategy::zero3;
  const bool shares_gradients = is_third || strategy == Strategy::zero2;
  if (strategy == Strategy::pipeline) {
    for (double* const part : {&memory.parameters, &memory.gradients, &memory.optimizer}) {
      *part /= devices;
    }
  }
  if (shares_gradients || strategy == Strategy::zero1) memory.optimizer /= devices;
  if (shares_gradients) memory.gradients /= devices;
  if (is_third) memory.parameters /= devices;
  if (strategy == Strategy::ddp || strategy == Strategy::hierarchical) memory.buckets = weights;
  const double unit = net.largest_unit * value_bytes;
  if (shares_gradients) memory.buckets = (is_third ? 3 : 1) * unit;
  memory.workspace = kContextBytes + kFragmentation * memory.total();
  return memory;
}

std::size_t largest_batch(const NetMemory& net, MemoryOptions options, double memory_bytes) {
  if (!net.has_activations) return 0;
  options.batch = 0;
  const double fixed = device_memory(net, options).total();
  options.batch = 1;
  const double sample = device_memory(net, options).total() - fixed;
  if (fixed + sample > memory_bytes || sample <= 0) return 0;
  return static_cast<std::size_t>(std::floor((memory_bytes - fixed) / sample));
}

}  // namespace lockstep::predict

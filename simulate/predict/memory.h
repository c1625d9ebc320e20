// The memory that a device needs for a training step: what stays for the whole run, and what is
// kept from the forward pass for the backward pass.
//
// Bytes of a parameter (Rajbhandari et al., "ZeRO", arXiv 1910.02054, section 3.1; a share of 1 / n
// where a stage of ZeRO spreads it over n devices):
//   mixed   2 weight + 2 gradient + Adam's 12 (float32 weight, two moments), or SGD's 8
//   fp32    4 + 4 + 8, or 4 with momentum
// Bytes kept of a transformer's layer for a sample of s tokens, with h channels and a heads
// (Korthikanti et al., arXiv 2205.05198, equations 1 to 4, there for 2-byte values):
//   s h (10 + 24/t) + 5 a s^2 / t over t tensor-parallel devices; with sequence parallelism all / t
//   without the attention's scores: no 5 a s^2; with full recomputation: 2 s h
//
// Range: the formulas count what a step must hold. A program holds more: the library's context
// (kContextBytes), and what its allocator cannot use (kFragmentation of the rest, assumed).
// docs/prediction.md compares them with published figures.
#pragma once

#include <cstddef>
#include <string>

#include "engine/plan/pipeline.h"
#include "simulate/predict/step.h"

namespace lockstep::predict {

// CUDA's kernels and libraries on a V100: 1343 MiB in transformers' model_memory_anatomy.md.
inline constexpr double kContextBytes = 1343.0 * (1 << 20);
inline constexpr double kFragmentation = 0.05;

enum class Numbers { fp32, mixed };
enum class StateOptimizer { sgd, adam };

// Which activations are computed again in the backward pass. `attention`: its scores; a fused
// attention (PyTorch's scaled_dot_product_attention) does not keep them either.
enum class Recompute { none, attention, full };

// A net, as far as its memory is concerned. "Values" have the size of the computation's numbers.
struct NetMemory {
  double parameters = 0;
  double largest_unit = 0;      // parameters that ZeRO's third stage gathers together
  double kept_values = 0;       // of a sample, for the backward pass
  double kept_bytes = 0;        // of a sample, in any format: dropout's masks, float32 logits
  bool has_activations = true;  // false: they are not known, and count as none
};

struct TransformerShape {
  double layers = 0, heads = 0, channels = 0, context = 0;
  bool has_dropout = true;  // keeps a byte for each value that it passes or drops
};

struct TensorParallel {
  double devices = 1;
  bool shares_sequence = false;
};

// A layer keeps this of a sample: {values, bytes}.
struct Kept {
  double values = 0, bytes = 0;
};
Kept kept_of_layer(const TransformerShape& shape, Recompute recompute,
                   const TensorParallel& tensor = {});

struct MemoryOptions {
  Strategy strategy = Strategy::ddp;
  std::size_t num_devices = 1;
  // Samples on a device at a time: of a micro-batch, if it accumulates; a pipeline's whole batch.
  std::size_t batch = 1;
  Numbers numbers = Numbers::fp32;
  StateOptimizer optimizer = StateOptimizer::adam;
  // For a pipeline, of whose stages the first is the fullest.
  plan::PipelineSchedule schedule = plan::PipelineSchedule::gpipe;
  std::size_t num_micro_batches = 4;
};

// Bytes. parameters, gradients and optimizer as above. buckets: PyTorch's DDP keeps gradients a
// second time in its buckets; ZeRO's stages 2 and 3 one unit's gradients, and stage 3 two units'
// gathered parameters (this one and the next).
struct DeviceMemory {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double buckets = 0;
  double workspace = 0;

  double total() const {
    return parameters + gradients + optimizer + activations + buckets + workspace;
  }
};

// The memory of the device that needs most. DataParallel's first device adds one replica's
// gradients at a time.
DeviceMemory device_memory(const NetMemory& net, const MemoryOptions& options);

// The largest batch whose step fits; 0 if none does, or the activations are not known.
std::size_t largest_batch(const NetMemory& net, MemoryOptions options, double memory_bytes);

}  // namespace lockstep::predict

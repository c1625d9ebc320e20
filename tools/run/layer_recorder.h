// Records what each layer of a model computes, takes and keeps in a step, as its kernels report it.
// So the predictor, which starts from this, counts the same work that slow motion paces.
//
// A layer is a module with parameters, and the parameterless operations after it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/nn/module.h"
#include "simulate/slow_motion/paced_backend.h"
#include "tools/run/workload.h"

namespace lockstep::tools {

// The memory that a layer holds during a step, besides its parameters.
struct LayerMemory {
  std::size_t kept_bytes = 0;     // written forward, and held for the backward pass
  std::size_t scratch_bytes = 0;  // patches, while a convolution runs
};

class LayerRecorder final : public slow_motion::KernelListener {
 public:
  // REQUIRES: the model is on one device and outlives this object.
  explicit LayerRecorder(const nn::Module& model);

  // Runs forward(), which takes num_rows rows through the model, and its backward pass. Adds to the
  // parameters' gradients.
  void record(std::size_t num_rows, const std::function<Variable()>& forward);

  // The layers in the order of their parameters, with the last pass's sizes and the median times.
  std::vector<FileLayer> layers() const;
  // Runs the forward pass and returns the memory of each layer.
  std::vector<LayerMemory> memory(const std::function<Variable()>& forward);

  void on_kernel(kernels::Stream& stream, const slow_motion::KernelSizes& kernel) override;

 private:
  enum class Pass { forward, backward };
  struct Times {
    std::vector<double> forward, backward;  // seconds of each pass
  };

  Variable run_forward(const std::function<Variable()>& forward);
  void begin(Pass pass);
  // A kernel multiplies by its layer's parameters, or for attention.
  enum class Product { of_parameters, of_attention };
  void note_forward(const slow_motion::KernelSizes& kernel, Product kind);
  void end_backward(std::size_t layer);
  double seconds_since_mark();

  Device device_;
  std::vector<FileLayer> layers_;
  std::vector<Times> times_;
  std::vector<LayerMemory> memory_;
  std::unordered_map<const void*, std::size_t> layer_of_;  // key: a parameter or a buffer
  // Key: the input of a layer that uses an earlier layer's weight. Value: that layer.
  std::unordered_map<const void*, std::size_t> tied_;

  Pass pass_ = Pass::forward;
  std::size_t num_rows_ = 1;
  std::size_t current_ = 0;  // forward: the layer that is computed
  runtime::Time mark_{};
  std::vector<double> pending_;  // backward: bytes of the kernels of the layer that ends next
  struct Written {
    std::size_t layer = 0;
    std::size_t num_bytes = 0;
  };
  std::map<const void*, Written> written_;  // forward
};

// A table with one line per layer (parameters, their gradients, SGD's momentum, and what it keeps),
// and the total next to the most memory that the device held in a step.
std::string memory_table(std::span<const FileLayer> layers, std::span<const LayerMemory> memory,
                         std::size_t input_bytes, std::size_t peak_bytes);

}  // namespace lockstep::tools

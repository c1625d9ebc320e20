// Models from a word: perceptrons, convolutional nets for images, and GPTs for text.
//
//   mlp:784-256-10[:relu|gelu|tanh]    a perceptron, for rows
//   lenet                              two convolutions, average pools, 128 neurons
//   lenet5                             LeCun's of 1998
//   resnet18[:WIDTH]                   WIDTH (64) channels in its first stage
//   cnn:32c3-32c3-p2-64c3-p2-128-10    a net of your own, layer by layer
//   gpt:4-4-128-64                     layers, heads, channels, context (gpt.h)
//   gpt2, gpt2-medium                  gpt:12-12-768-1024, gpt:24-16-1024-1024
//
// A model is made for the data's rows, which determine the channels of its first convolution, the
// inputs of its first linear layer, and the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/shape.h"
#include "engine/nn/gpt.h"
#include "engine/nn/layers.h"

namespace lockstep::nn {

// The rows and classes that a model is made for.
struct ModelData {
  Shape row;  // [features], [height, width, channels], or [tokens]
  std::size_t num_classes = 0;
  enum class Values { numbers, tokens } values = Values::numbers;
};

struct MlpSpec {
  std::vector<std::size_t> sizes;  // inputs, hidden layers, outputs: at least two, all positive
  Activation activation = Activation::relu;  // between the layers

  bool operator==(const MlpSpec&) const = default;
};

// A layer of cnn:...
struct CnnLayer {
  enum class Kind { convolution, max_pool, average_pool, linear } kind = Kind::linear;
  std::size_t size = 0;    // output channels or neurons; of a pool, its kernel
  std::size_t kernel = 0;  // a convolution's

  bool operator==(const CnnLayer&) const = default;
};

struct ModelSpec {
  enum class Kind { mlp, lenet, lenet5, resnet18, cnn, gpt } kind = Kind::mlp;
  MlpSpec mlp;                   // mlp only
  std::size_t width = 64;        // resnet18 only
  std::vector<CnnLayer> layers;  // cnn only; the last is linear
  GptOptions gpt;                // gpt only; without the vocabulary

  bool takes_text() const { return kind == Kind::gpt; }
  bool takes_images() const { return kind != Kind::mlp && kind != Kind::gpt; }
  bool has_batch_norm() const { return kind == Kind::resnet18; }
  bool operator==(const ModelSpec&) const = default;
};

// Parses the words above. In cnn:, NcK is a convolution of N channels with a K x K kernel, K odd,
// which keeps the images' size, and a ReLU; pK (aK) a maximum (average) pool of K x K pixels; N a
// linear layer of N neurons, with a ReLU unless it is the last.
// Throws Error{Usage} that says what is allowed.
ModelSpec parse_model(std::string_view text);

// The number of parameters of such a model, to one part in a hundred (0 for lenet and lenet5),
// without making it. Throws Error{Shape} for a window that is larger than its padded images.
double count_parameters(const ModelSpec& spec, const ModelData& data);

// How many values per channel the model's last batch norm sees of one image: training needs two in
// all. REQUIRES: the model has one, and fits the data.
std::size_t least_batch_norm_values(const ModelSpec& spec, const ModelData& data);

// Throws Error{Usage} that says what fits, unless such a model can be made for the data: rows of
// the perceptron's size, images at least as large as every window, outputs for all classes, text
// for a GPT. name: the data's name in errors.
void require_model_fits(std::string_view text, const ModelData& data, std::string_view name);

// Makes the model. Initial weights are drawn layer by layer from Rng(seed), the same on every
// device.
//   lenet:    that of "Dive into Deep Learning" on several GPUs: conv 20 of 3x3, ReLU, average pool
//             2, conv 50 of 5x5, ReLU, average pool 2, 128, ReLU, classes. Smaller images get
//             margins of zeros, up to 28 x 28.
//   lenet5:   conv 6 of 5x5, tanh, average pool 2, conv 16 of 5x5, tanh, average pool 2, 120, 84,
//             classes; images get margins up to 32 x 32.
//   resnet18: as torchvision's, whose names it has, with a first convolution of 3x3, stride 1, and
//             no pool after it, for images of about 32 x 32.
// Layers are named "0", "1", ..., except those of resnet18 and GPTs.
// REQUIRES: require_model_fits.
std::shared_ptr<Module> make_model(const ModelSpec& spec, const ModelData& data, std::uint64_t seed,
                                   DType dtype = DType::float32, Device device = default_device());
std::shared_ptr<Module> make_model(std::string_view text, const ModelData& data, std::uint64_t seed,
                                   DType dtype = DType::float32, Device device = default_device());

// Parses mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh]. GELU is the erf form.
// Throws Error{Usage} that says what is allowed.
MlpSpec parse_mlp(std::string_view text);

// Linear, activation, Linear, ...: the layers are named "0", "2", "4", ... as in PyTorch. Initial
// weights are drawn layer by layer from Rng(seed), and are the same on every device.
std::shared_ptr<Sequential> make_mlp(const MlpSpec& spec, std::uint64_t seed,
                                     DType dtype = DType::float32,
                                     Device device = default_device());
std::shared_ptr<Sequential> make_mlp(std::string_view text, std::uint64_t seed,
                                     DType dtype = DType::float32,
                                     Device device = default_device());

}  // namespace lockstep::nn

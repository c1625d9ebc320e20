#include "tools/whatif/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/nn/models.h"
#include "tools/run/data_sheet.h"

namespace lockstep::tools {
namespace {

constexpr double kMaxDenseFlopsPerParameter = 2.5;
constexpr double kMinConvFlopsPerParameter = 30;
constexpr double kDenseEfficiency = 0.8;
constexpr double kMaxOptimizerShare = 0.3;  // the optimizer's share of a step; assumed
constexpr double kMemoryEfficiency = 0.75;
constexpr double kOptimizerPasses = 5;  // reads gradient, weight, momentum; writes the last two

// The arguments are channels in, channels out, kernel, and the side of the output.
LayerShape convolution(const std::string& name, double in, double out, double kernel, double side) {
  const double weights = in * out * kernel * kernel;
  return {name, weights, out, weights * side * side};
}

LayerShape dense(const std::string& name, double in, double out) {
  return {name, in * out, out, in * out, out};
}

// Krizhevsky, "One weird trick", 2014 (one column).
std::vector<LayerShape> alexnet() {
  return {convolution("conv1", 3, 64, 11, 55),
          convolution("conv2", 64, 192, 5, 27),
          convolution("conv3", 192, 384, 3, 13),
          convolution("conv4", 384, 256, 3, 13),
          convolution("conv5", 256, 256, 3, 13),
          dense("fc6", 9216, 4096),
          dense("fc7", 4096, 4096),
          dense("fc8", 4096, 1000)};
}

// Simonyan and Zisserman, 2014, configuration D.
std::vector<LayerShape> vgg16() {
  std::vector<LayerShape> layers;
  double in = 3;
  double side = 224;
  const std::vector<std::pair<double, int>> stages = {
      {64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
  for (const auto& [out, count] : stages) {
    for (int i = 0; i < count; ++i) {
      layers.push_back(convolution("conv" + std::to_string(layers.size() + 1), in, out, 3, side));
      in = out;
    }
    side /= 2;
  }
  layers.push_back(dense("fc6", 25088, 4096));
  layers.push_back(dense("fc7", 4096, 4096));
  layers.push_back(dense("fc8", 4096, 1000));
  return layers;
}

// Caffe's form of LeNet.
std::vector<LayerShape> lenet() {
  return {convolution("conv1", 1, 20, 5, 24), convolution("conv2", 20, 50, 5, 8),
          dense("ip1", 800, 500), dense("ip2", 500, 10)};
}

struct KnownNet {
  std::string_view name;
  double parameters;
  double forward_gflop;
  int tensors;                                    // of parameters; 0: as many as the shapes have
  std::vector<LayerShape> (*shapes)() = nullptr;  // null: the shapes of any net of this size
};

// Images: from torchvision's documentation, whose GFLOPS count a multiply-add once; lenet is
// Caffe's, inception-bn MXNet's. gpt2 has sequences of 1024 tokens, bert of 512. A token takes two
// operations for each weight that it meets, and 4 * context * width per block for attention.
// Tensors: of torchvision's nets, and of transformers'.
constexpr KnownNet kKnownNets[] = {
    {"lenet", 431'080, 0.0046, 8, lenet},
    {"alexnet", 61'100'840, 1.43, 16, alexnet},
    {"vgg16", 138'357'544, 30.9, 32, vgg16},
    {"inception-bn", 11'300'000, 4.0, 0},
    {"inception3", 27'161'264, 11.4, 292},
    {"mobilenet_v2", 3'504'872, 0.6, 158},
    {"efficientnet_b0", 5'288'548, 0.78, 213},
    {"densenet121", 7'978'856, 5.67, 364},
    {"resnet18", 11'689'512, 3.63, 62},
    {"resnet34", 21'797'672, 7.33, 110},
    {"resnet50", 25'557'032, 8.18, 161},
    {"resnet101", 44'549'160, 15.6, 314},
    {"resnet152", 60'192'808, 23.0, 467},
    {"resnext50_32x4d", 25'028'904, 8.46, 161},
    {"convnext_tiny", 28'589'128, 8.91, 182},
    {"vit_b_16", 86'567'656, 35.1, 152, [] { return transformer_shapes(12, 768, 197, 1000); }},
    {"bert-base", 109'482'240, 96.8, 199, [] { return transformer_shapes(12, 768, 512, 30'522); }},
    {"bert-large", 335'141'888, 335, 391, [] { return transformer_shapes(24, 1024, 512, 30'522); }},
    {"gpt2", 124'439'808, 292, 148, [] { return transformer_shapes(12, 768, 1024, 50'257); }},
    {"gpt2-medium", 354'823'168, 828, 292,
     [] { return transformer_shapes(24, 1024, 1024, 50'257); }},
    {"gpt2-large", 774'030'080, 1776, 436,
     [] { return transformer_shapes(36, 1280, 1024, 50'257); }},
    {"gpt2-xl", 1'557'611'200, 3509, 580,
     [] { return transformer_shapes(48, 1600, 1024, 50'257); }},
};

Net mlp(const std::string& name) {
  Net net;
  net.name = name;
  const std::vector<std::size_t> sizes = nn::parse_mlp(name).sizes;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    const auto in = static_cast<double>(sizes[i]);
    const auto out = static_cast<double>(sizes[i + 1]);
    net.shapes.push_back(dense(std::to_string(2 * i), in, out));
    net.parameters += (in + 1) * out;
    net.forward_flops += 2 * in * out;
  }
  return net;
}

bool is_dense(const Net& net) {
  return net.forward_flops > 0 && net.forward_flops <= kMaxDenseFlopsPerParameter * net.parameters;
}

std::vector<LayerShape> unknown_shapes(const Net& net) {
  constexpr int kLayers = 54;
  std::vector<LayerShape> layers;
  if (is_dense(net)) {
    for (int i = 0; i < 4; ++i) layers.push_back({std::to_string(2 * i), 1000, 1, 1});
    return layers;
  }
  for (int i = 0; i < kLayers; ++i) {
    const double weights = std::exp2(4.0 * i / kLayers);
    layers.push_back({"layer" + std::to_string(i + 1), weights, weights / 1000, 1});
  }
  const bool has_dense_layers =
      net.forward_flops > 0 && net.forward_flops < kMinConvFlopsPerParameter * net.parameters;
  if (has_dense_layers) {
    double convolutions = 0;
    for (const LayerShape& layer : layers) convolutions += layer.weights;
    for (const double times : {9.0, 4.0, 1.0}) {  // roughly AlexNet's
      layers.push_back({"dense", convolutions * times, times, 1});
    }
  }
  return layers;
}

double optimizer_seconds(const Net& net, const predict::DeviceProfile& device) {
  return kOptimizerPasses * net.gradient_bytes() /
         (kMemoryEfficiency * device.memory_bytes_per_second);
}

std::vector<LayerShape> shapes_of(const Net& net) {
  return net.shapes.empty() ? unknown_shapes(net) : net.shapes;
}

// True if each layer is a convolution with batch normalisation, which has a scale as well as a
// shift: taken for granted where there are many.
bool has_scales(const std::vector<LayerShape>& shapes) {
  return shapes.size() > 20;
}

}  // namespace

std::vector<LayerShape> transformer_shapes(int blocks, double width, double context,
                                           double vocabulary) {
  const double square = width * width;
  const double tokens_channels = context * width;
  std::vector<LayerShape> layers{
      {"embedding", (vocabulary + context) * width, 0, 0, tokens_channels}};
  for (int i = 0; i < blocks; ++i) {
    const std::string block =
        "block." + std::to_string(i);  // ZeRO gathers a block's layers together
    layers.push_back({block + ".qkv", 3 * square, 3 * width, 3 * square + 2 * context * width});
    layers.push_back({block + ".projection", square, width, square});
    layers.push_back({block + ".up", 4 * square, 4 * width, 4 * square});
    layers.push_back({block + ".down", 4 * square, width, 4 * square, tokens_channels});
  }
  layers.push_back({"head", 0, width, vocabulary * width});
  return layers;
}

Net find_net(const std::string& name) {
  if (name.starts_with("mlp:")) return mlp(name);
  std::vector<std::string> names;
  for (const KnownNet& known : kKnownNets) {
    if (known.name == name) {
      Net net{name, known.parameters, known.forward_gflop * 1e9};
      if (known.shapes) net.shapes = known.shapes();
      net.tensors = known.tensors;
      return net;
    }
    names.emplace_back(known.name);
  }
  fail(ErrorCode::Usage, "--model", "'{}' is not one of {}, mlp:SIZES{}; give --params instead",
       shown(name), known_net_names(), did_you_mean(name, names));
}

std::string known_net_names() {
  std::string names;
  for (const KnownNet& known : kKnownNets) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

double peak_flops(const predict::DeviceProfile& device, Precision precision) {
  using kernels::MatmulPrecision;
  if (precision == Precision::fp32) return device.flops_per_second;
  const auto sheet = [&](MatmulPrecision of) { return tools::peak_flops(device.name, of); };
  const std::optional<double> tensor_cores =
      sheet(precision == Precision::tf32 ? MatmulPrecision::high : MatmulPrecision::bf16);
  if (tensor_cores) {
    return device.flops_per_second / *sheet(MatmulPrecision::highest) * *tensor_cores;
  }
  fail(ErrorCode::Usage, "--precision",
       "the peak of '{}' in {} is not known; measure a step there and give --step", device.name,
       precision == Precision::tf32 ? "tf32" : "bf16");
}

double guessed_step_seconds(const Net& net, const predict::DeviceProfile& device) {
  return net.forward_passes * net.forward_flops * static_cast<double>(net.batch_per_gpu) /
             (kGuessedEfficiency * peak_flops(device, net.precision)) +
         optimizer_seconds(net, device);
}

Net with_step(Net net, const predict::DeviceProfile& device, double guess) {
  if (!net.step_seconds) net.step_seconds = guess * guessed_step_seconds(net, device);
  return net;
}

predict::PythonHost python_host(const Net& net) {
  double tensors = net.tensors;
  if (tensors == 0) {
    const std::vector<LayerShape> shapes = shapes_of(net);
    tensors = static_cast<double>((has_scales(shapes) ? 3 : 2) * shapes.size());
  }
  const double guess = std::min(tensors * kHostSecondsPerTensor, net.step_seconds.value() / 2);
  const double forward = net.host_seconds.value_or(guess);
  return {kCopyShare * forward, forward};
}

predict::Workload net_workload(const Net& net, const predict::DeviceProfile& device, double rows) {
  const double step = net.step_seconds.value();
  const auto batch = static_cast<double>(net.batch_per_gpu);
  predict::Workload workload;
  workload.optimizer_seconds = std::min(optimizer_seconds(net, device), kMaxOptimizerShare * step);
  double compute = step - workload.optimizer_seconds;
  if (is_dense(net)) {
    const double arithmetic =
        3 * net.forward_flops * batch / (kDenseEfficiency * device.flops_per_second);
    workload.fixed_seconds = std::max(0.0, compute - arithmetic);
    compute -= workload.fixed_seconds;
  }
  const std::vector<LayerShape> shapes = shapes_of(net);
  double weights = 0;
  double work = 0;
  for (const LayerShape& shape : shapes) {
    weights += shape.weights + shape.biases;
    work += shape.work;
  }
  const double scale = net.gradient_bytes() / weights;
  const auto bytes = [&](double count) {
    return std::max<std::size_t>(4, static_cast<std::size_t>(count * scale) / 4 * 4);
  };
  for (const LayerShape& shape : shapes) {
    const double forward = compute * shape.work / work / net.forward_passes;
    predict::LayerWork layer{shape.name,
                             forward,
                             (net.forward_passes - 1) * forward,
                             {bytes(shape.weights), bytes(shape.biases)}};
    if (has_scales(shapes)) layer.tensor_bytes.push_back(bytes(shape.biases));
    workload.layers.push_back(std::move(layer));
  }
  return predict::with_rows(std::move(workload), rows / batch);
}

std::size_t num_pipeline_layers(const Net& net) {
  const auto count = static_cast<std::size_t>(
      std::ranges::count_if(net.shapes, [](const LayerShape& shape) { return shape.outputs > 0; }));
  require(count > 0, ErrorCode::Usage, "--strategy",
          "a pipeline sends layers' outputs, whose sizes are not known of {}; use --workload, or "
          "bert, gpt or llama as --family",
          shown(net.name));
  return count + (net.shapes.back().outputs > 0 ? 0 : 1);
}

predict::Workload pipeline_workload(const Net& net, const predict::DeviceProfile& device,
                                    double rows) {
  predict::Workload workload = net_workload(net, device, rows);
  const double value_bytes = net.precision == Precision::bf16 ? 2 : 4;
  std::vector<predict::LayerWork> joined;
  bool is_open = false;
  for (std::size_t i = 0; i < workload.layers.size(); ++i) {
    predict::LayerWork& layer = workload.layers[i];
    layer.output_bytes = net.shapes[i].outputs * value_bytes * rows;
    if (is_open) {
      predict::LayerWork& last = joined.back();
      last.forward_seconds += layer.forward_seconds;
      last.backward_seconds += layer.backward_seconds;
      last.output_bytes = layer.output_bytes;
      last.tensor_bytes.insert(last.tensor_bytes.end(), layer.tensor_bytes.begin(),
                               layer.tensor_bytes.end());
    } else {
      joined.push_back(std::move(layer));
    }
    is_open = net.shapes[i].outputs == 0;
  }
  workload.layers = std::move(joined);
  return workload;
}

}  // namespace lockstep::tools

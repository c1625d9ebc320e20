#include "tools/prediction/published_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lockstep::tools {
namespace {

// Weights, and the layer's share of the work, of any unit.
struct LayerShape {
  std::string name;
  double weights = 0;
  double biases = 0;
  double work = 0;
};

constexpr double kMaxDenseFlopsPerParameter = 2.5;
constexpr double kMinConvFlopsPerParameter = 30;
constexpr double kDenseEfficiency = 0.8;
constexpr double kGuessedEfficiency = 0.3;  // assumed: docs/prediction.md
constexpr double kMaxOptimizerShare = 0.3;  // of a step; assumed
constexpr double kMemoryEfficiency = 0.75;
constexpr double kMaxGradientMegabytes = 1e7;
constexpr double kOptimizerPasses = 5;  // reads gradient, weight, momentum; writes the latter two

// channels in, out, kernel, and the side of the output.
LayerShape convolution(const std::string& name, double in, double out, double kernel, double side) {
  const double weights = in * out * kernel * kernel;
  return {name, weights, out, weights * side * side};
}

LayerShape dense(const std::string& name, double in, double out) {
  return {name, in * out, out, in * out};
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

// The numbers of "mlp 784-1024-10 global batch 1000"; empty for other names.
std::vector<LayerShape> mlp(const std::string& name) {
  std::vector<double> sizes;
  const char* at = name.data() + std::min(name.find_first_of("0123456789"), name.size());
  const char* const end = name.data() + name.size();
  while (at < end) {
    double size = 0;
    const auto result = std::from_chars(at, end, size, std::chars_format::fixed);
    if (result.ec != std::errc() || size < 1 || size > 1e9) break;
    sizes.push_back(size);
    if (result.ptr == end || *result.ptr != '-') break;
    at = result.ptr + 1;
  }
  std::vector<LayerShape> layers;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers.push_back(dense(std::to_string(2 * i), sizes[i], sizes[i + 1]));
  }
  return layers;
}

std::vector<LayerShape> unknown_net(const PublishedModel& model) {
  constexpr int kLayers = 54;
  std::vector<LayerShape> layers;
  const double flops_per_parameter = model.forward_flops / model.parameters;
  const bool is_dense = flops_per_parameter <= kMaxDenseFlopsPerParameter;
  if (is_dense) {
    for (int i = 0; i < 4; ++i) layers.push_back({std::to_string(2 * i), 1000, 1, 1});
    return layers;
  }
  for (int i = 0; i < kLayers; ++i) {
    const double weights = std::exp2(4.0 * i / kLayers);
    layers.push_back({"layer" + std::to_string(i + 1), weights, weights / 1000, 1});
  }
  if (flops_per_parameter < kMinConvFlopsPerParameter) {
    double convolutions = 0;
    for (const LayerShape& layer : layers) convolutions += layer.weights;
    for (const double times : {9.0, 4.0, 1.0}) {  // about as in AlexNet
      layers.push_back({"dense", convolutions * times, times, 1});
    }
  }
  return layers;
}

std::vector<LayerShape> shapes_of(const PublishedModel& model) {
  if (model.name == "alexnet") return alexnet();
  if (model.name == "vgg" || model.name == "vgg16") return vgg16();
  if (model.name == "lenet") return lenet();
  if (model.name.starts_with("mlp")) {
    std::vector<LayerShape> layers = mlp(model.name);
    if (!layers.empty()) return layers;
  }
  return unknown_net(model);
}

double optimizer_seconds(const PublishedModel& model, const predict::DeviceProfile& device) {
  return kOptimizerPasses * model.gradient_bytes /
         (kMemoryEfficiency * device.memory_bytes_per_second);
}

}  // namespace

std::vector<PublishedModel> read_models(const std::string& path) {
  const CsvTable table(path);
  table.require_columns({"model", "parameters", "gradient_MB", "forward_GFLOP_per_sample"});
  std::vector<PublishedModel> models;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const auto need = [&](const char* column) {
      const std::optional<double> value = table.number(row, column);
      if (!value) table.fail_at(row, std::string(column) + " is missing");
      return *value;
    };
    if (need("gradient_MB") > kMaxGradientMegabytes) {
      table.fail_at(row, "gradient_MB is above 10,000,000: is it in MB?");
    }
    models.push_back({table.cell(row, "model"), need("parameters"), need("gradient_MB") * 1e6,
                      need("forward_GFLOP_per_sample") * 1e9});
  }
  return models;
}

double epoch_samples(const PublishedModel& model) {
  return model.forward_flops >= 1e8 ? 1'281'167 : 60'000;
}

predict::Workload calibrated_workload(const PublishedModel& model,
                                      const predict::DeviceProfile& device, double batch,
                                      double step_seconds) {
  predict::Workload workload;
  workload.optimizer_seconds =
      std::min(optimizer_seconds(model, device), kMaxOptimizerShare * step_seconds);
  const bool is_dense = model.forward_flops <= kMaxDenseFlopsPerParameter * model.parameters;
  double compute = step_seconds - workload.optimizer_seconds;
  if (is_dense) {
    const double arithmetic =
        3 * model.forward_flops * batch / (kDenseEfficiency * device.flops_per_second);
    workload.fixed_seconds = std::max(0.0, compute - arithmetic);
    compute -= workload.fixed_seconds;
  }
  const std::vector<LayerShape> shapes = shapes_of(model);
  double weights = 0;
  double work = 0;
  for (const LayerShape& shape : shapes) {
    weights += shape.weights + shape.biases;
    work += shape.work;
  }
  const double scale = model.gradient_bytes / weights;
  const auto bytes = [&](double count) {
    return std::max<std::size_t>(4, static_cast<std::size_t>(count * scale) / 4 * 4);
  };
  for (const LayerShape& shape : shapes) {
    predict::LayerWork layer{shape.name,
                             compute * shape.work / work / 3,
                             2 * compute * shape.work / work / 3,
                             {bytes(shape.weights), bytes(shape.biases)}};
    // A convolution with batch normalisation has its scale besides its shift.
    if (shapes.size() > 20) layer.tensor_bytes.push_back(bytes(shape.biases));
    workload.layers.push_back(std::move(layer));
  }
  return workload;
}

double guessed_step_seconds(const PublishedModel& model, const predict::DeviceProfile& device,
                            double batch) {
  return 3 * model.forward_flops * batch / (kGuessedEfficiency * device.flops_per_second) +
         optimizer_seconds(model, device);
}

}  // namespace lockstep::tools

// Makes the models that the words name.
#include "engine/nn/models.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/nn/image_layers.h"

namespace lockstep::nn {
namespace {

std::shared_ptr<Module> make_activation(Activation activation) {
  if (activation == Activation::relu) return std::make_shared<ReLU>();
  if (activation == Activation::gelu_erf) return std::make_shared<GELU>();
  if (activation == Activation::tanh) return std::make_shared<Tanh>();
  fail(ErrorCode::Usage, "model", "an mlp needs an activation between its layers");
}

}  // namespace

std::shared_ptr<Sequential> make_mlp(const MlpSpec& spec, std::uint64_t seed, DType dtype,
                                     Device device) {
  require(spec.sizes.size() >= 2, ErrorCode::Usage, "model",
          "an mlp needs at least an input and an output size, found {} sizes", spec.sizes.size());
  Rng rng(seed);
  LinearOptions options;
  options.dtype = dtype;
  options.device = device;
  std::vector<std::shared_ptr<Module>> modules;
  for (std::size_t i = 0; i + 1 < spec.sizes.size(); ++i) {
    if (i > 0) modules.push_back(make_activation(spec.activation));
    modules.push_back(std::make_shared<Linear>(spec.sizes[i], spec.sizes[i + 1], rng, options));
  }
  return std::make_shared<Sequential>(std::move(modules));
}

std::shared_ptr<Sequential> make_mlp(std::string_view text, std::uint64_t seed, DType dtype,
                                     Device device) {
  return make_mlp(parse_mlp(text), seed, dtype, device);
}

namespace {

// Makes the layers of a net one by one, and keeps track of the shape after the last one.
class NetBuilder {
 public:
  NetBuilder(const Shape& row, std::uint64_t seed, DType dtype, Device device)
      : height_(row[0]),
        width_(row[1]),
        channels_(row[2]),
        rng_(seed),
        dtype_(dtype),
        device_(device) {}

  // How many zeros on every side make the images at least `size` high and wide.
  std::size_t margin_up_to(std::size_t size) const {
    const std::size_t smaller = std::min(height_, width_);
    return smaller < size ? (size - smaller + 1) / 2 : 0;
  }

  std::shared_ptr<Module> convolution(std::size_t channels, std::size_t kernel,
                                      const WindowOptions& windows = {}, Bias bias = Bias::yes) {
    auto layer = std::make_shared<Conv2d>(
        channels_, channels, kernel, rng_,
        Conv2dOptions{windows.stride, windows.padding, bias, dtype_, device_});
    slide(kernel, windows);
    channels_ = channels;
    return layer;
  }
  std::shared_ptr<Module> norm() const {
    return std::make_shared<BatchNorm2d>(
        channels_, BatchNormOptions{1e-5, 0.1, BatchNormOptions::Affine::yes, dtype_, device_});
  }
  template <typename Pool>
  std::shared_ptr<Module> pool(std::size_t kernel) {
    slide(kernel, {kernel, 0});
    return std::make_shared<Pool>(kernel);
  }
  std::shared_ptr<Module> linear(std::size_t size) {
    LinearOptions options;
    options.dtype = dtype_;
    options.device = device_;
    auto layer = std::make_shared<Linear>(height_ * width_ * channels_, size, rng_, options);
    height_ = width_ = 1;
    channels_ = size;
    return layer;
  }
  std::shared_ptr<Module> global_average() {
    height_ = width_ = 1;
    return std::make_shared<GlobalAvgPool>();
  }

  // Two convolutions, and a shortcut around them.
  std::shared_ptr<Module> residual(std::size_t channels, std::size_t stride) {
    NetBuilder around = *this;  // the same images; its weights are drawn last
    std::vector<NamedModule> body;
    const bool changes = stride != 1 || channels != channels_;
    body.emplace_back("conv1", convolution(channels, 3, {stride, 1}, Bias::no));
    body.emplace_back("bn1", norm());
    body.emplace_back("relu", std::make_shared<ReLU>());
    body.emplace_back("conv2", convolution(channels, 3, {1, 1}, Bias::no));
    body.emplace_back("bn2", norm());
    if (!changes) return std::make_shared<Residual>(std::move(body));
    around.rng_ = rng_;
    std::vector<std::shared_ptr<Module>> shortcut;
    shortcut.push_back(around.convolution(channels, 1, {stride, 0}, Bias::no));
    shortcut.push_back(around.norm());
    rng_ = around.rng_;
    return std::make_shared<Residual>(std::move(body),
                                      std::make_shared<Sequential>(std::move(shortcut)));
  }

 private:
  // Throws Error{Shape} for a window larger than the padded images.
  void slide(std::size_t kernel, const WindowOptions& options) {
    const kernels::Windows windows =
        windows_over("model", {1, height_, width_, channels_}, kernel, kernel, options);
    height_ = windows.out_height();
    width_ = windows.out_width();
  }

  std::size_t height_;
  std::size_t width_;
  std::size_t channels_;
  Rng rng_;
  DType dtype_;
  Device device_;
};

using Modules = std::vector<std::shared_ptr<Module>>;

template <typename Activation>
Modules two_convolutions(NetBuilder& net, std::array<std::size_t, 2> channels,
                         std::array<std::size_t, 2> kernels, std::size_t smallest) {
  Modules modules;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t padding = i == 0 ? net.margin_up_to(smallest) : 0;
    modules.push_back(net.convolution(channels[i], kernels[i], {1, padding}));
    modules.push_back(std::make_shared<Activation>());
    modules.push_back(net.pool<AvgPool2d>(2));
  }
  modules.push_back(std::make_shared<Flatten>());
  return modules;
}

Modules make_lenet(NetBuilder& net, std::size_t num_classes) {
  Modules modules = two_convolutions<ReLU>(net, {20, 50}, {3, 5}, 28);
  modules.push_back(net.linear(128));
  modules.push_back(std::make_shared<ReLU>());
  modules.push_back(net.linear(num_classes));
  return modules;
}

Modules make_lenet5(NetBuilder& net, std::size_t num_classes) {
  Modules modules = two_convolutions<Tanh>(net, {6, 16}, {5, 5}, 32);
  for (const std::size_t size : {120, 84}) {
    modules.push_back(net.linear(size));
    modules.push_back(std::make_shared<Tanh>());
  }
  modules.push_back(net.linear(num_classes));
  return modules;
}

Modules make_cnn(NetBuilder& net, const std::vector<CnnLayer>& layers) {
  Modules modules;
  bool has_rows = false;
  for (const CnnLayer& layer : layers) {
    const bool is_linear = layer.kind == CnnLayer::Kind::linear;
    if (is_linear && !has_rows) modules.push_back(std::make_shared<Flatten>());
    has_rows = is_linear;
    switch (layer.kind) {
      case CnnLayer::Kind::convolution:
        modules.push_back(net.convolution(layer.size, layer.kernel, {1, layer.kernel / 2}));
        break;
      case CnnLayer::Kind::max_pool:
        modules.push_back(net.pool<MaxPool2d>(layer.size));
        break;
      case CnnLayer::Kind::average_pool:
        modules.push_back(net.pool<AvgPool2d>(layer.size));
        break;
      case CnnLayer::Kind::linear:
        modules.push_back(net.linear(layer.size));
        break;
    }
    const bool has_activation = layer.kind == CnnLayer::Kind::convolution || is_linear;
    if (has_activation && &layer != &layers.back()) modules.push_back(std::make_shared<ReLU>());
  }
  return modules;
}

std::shared_ptr<Sequential> make_resnet18(NetBuilder& net, std::size_t width,
                                          std::size_t num_classes) {
  std::vector<NamedModule> modules;
  modules.emplace_back("conv1", net.convolution(width, 3, {1, 1}, Bias::no));
  modules.emplace_back("bn1", net.norm());
  modules.emplace_back("relu", std::make_shared<ReLU>());
  for (std::size_t stage = 0; stage < 4; ++stage) {
    Modules blocks;
    blocks.push_back(net.residual(width << stage, stage == 0 ? 1 : 2));
    blocks.push_back(net.residual(width << stage, 1));
    modules.emplace_back(fmt::format("layer{}", stage + 1),
                         std::make_shared<Sequential>(std::move(blocks)));
  }
  modules.emplace_back("avgpool", net.global_average());
  modules.emplace_back("fc", net.linear(num_classes));
  return Sequential::with_names(std::move(modules));
}

bool is_image(const Shape& row) {
  return row.num_dims() == 3;
}

}  // namespace

double count_parameters(const ModelSpec& spec, const ModelData& data) {
  double count = 0;
  if (spec.kind == ModelSpec::Kind::resnet18) {
    return 2730.0 * static_cast<double>(spec.width) * static_cast<double>(spec.width);
  }
  if (spec.kind == ModelSpec::Kind::gpt) {
    GptOptions gpt = spec.gpt;
    gpt.vocabulary = data.num_classes;
    const GptParameterCounts counts = count_parameters(gpt);
    return counts.matrix_elements + counts.vector_elements;
  }
  const std::vector<std::size_t>& sizes = spec.mlp.sizes;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    count += (static_cast<double>(sizes[i]) + 1) * static_cast<double>(sizes[i + 1]);
  }
  if (spec.kind != ModelSpec::Kind::cnn) return count;
  kernels::Windows images{1, data.row[0], data.row[1], data.row[2]};
  for (const CnnLayer& layer : spec.layers) {
    const auto pixels = static_cast<double>(images.height * images.width);
    const double inputs = static_cast<double>(images.channels);
    const double outputs = static_cast<double>(layer.size);
    switch (layer.kind) {
      case CnnLayer::Kind::convolution:
        count += (inputs * static_cast<double>(layer.kernel * layer.kernel) + 1) * outputs;
        images.channels = layer.size;
        break;
      case CnnLayer::Kind::linear:
        count += (inputs * pixels + 1) * outputs;
        images = {1, 1, 1, layer.size};
        break;
      case CnnLayer::Kind::max_pool:
      case CnnLayer::Kind::average_pool:
        images = windows_over("model", {1, images.height, images.width, images.channels},
                              layer.size, layer.size, {layer.size, 0});
        images = {1, images.out_height(), images.out_width(), images.channels};
        break;
    }
  }
  return count;
}

std::size_t least_batch_norm_values(const ModelSpec& spec, const ModelData& data) {
  require(spec.kind == ModelSpec::Kind::resnet18, ErrorCode::Usage, "model", "has no batch norm");
  constexpr std::size_t kStride = 8;  // all strides together
  const auto size = [](std::size_t pixels) { return (pixels + kStride - 1) / kStride; };
  return size(data.row[0]) * size(data.row[1]);
}

void require_model_fits(std::string_view text, const ModelData& data, std::string_view name) {
  const ModelSpec spec = parse_model(text);
  const std::size_t num_features = data.row.num_elements();
  const bool is_text = data.values == ModelData::Values::tokens;
  require(is_text || !spec.takes_text(), ErrorCode::Usage, "model",
          "'{}' takes text, but {} has rows of {} numbers; train it on a text", text, name,
          num_features);
  require(!is_text || spec.takes_text(), ErrorCode::Usage, "model",
          "'{}' takes rows of numbers, but {} is a text; use gpt:LAYERS-HEADS-CHANNELS-CONTEXT",
          text, name);
  if (spec.takes_text()) return;
  if (!spec.takes_images()) {
    require(spec.mlp.sizes.front() == num_features && spec.mlp.sizes.back() >= data.num_classes,
            ErrorCode::Usage, "model",
            "'{}' takes {} inputs and gives {} outputs, but {} has {} features and {} classes; use "
            "mlp:{}-...-{}",
            text, spec.mlp.sizes.front(), spec.mlp.sizes.back(), name, num_features,
            data.num_classes, num_features, data.num_classes);
    return;
  }
  require(is_image(data.row), ErrorCode::Usage, "model",
          "'{}' takes images, but {} has rows of {} features; use mlp:{}-...-{}", text, name,
          num_features, num_features, data.num_classes);
  require(spec.kind != ModelSpec::Kind::cnn || spec.layers.back().size >= data.num_classes,
          ErrorCode::Usage, "model", "'{}' gives {} outputs, but {} has {} classes", text,
          spec.kind == ModelSpec::Kind::cnn ? spec.layers.back().size : 0, name, data.num_classes);
  try {
    count_parameters(spec, data);
  } catch (const Error& error) {
    fail(ErrorCode::Usage, "model", "'{}' does not fit the images of {}, {} x {}: {}", text, name,
         data.row[0], data.row[1], error.what());
  }
}

std::shared_ptr<Module> make_model(const ModelSpec& spec, const ModelData& data, std::uint64_t seed,
                                   DType dtype, Device device) {
  if (spec.takes_text()) {
    GptOptions options = spec.gpt;
    options.vocabulary = data.num_classes;
    options.seed = seed;
    return std::make_shared<Gpt>(options, Placement{dtype, device});
  }
  if (!spec.takes_images()) return make_mlp(spec.mlp, seed, dtype, device);
  NetBuilder net(data.row, seed, dtype, device);
  switch (spec.kind) {
    case ModelSpec::Kind::lenet:
      return std::make_shared<Sequential>(make_lenet(net, data.num_classes));
    case ModelSpec::Kind::lenet5:
      return std::make_shared<Sequential>(make_lenet5(net, data.num_classes));
    case ModelSpec::Kind::resnet18:
      return make_resnet18(net, spec.width, data.num_classes);
    case ModelSpec::Kind::cnn:
    case ModelSpec::Kind::mlp:
    case ModelSpec::Kind::gpt:
      break;
  }
  return std::make_shared<Sequential>(make_cnn(net, spec.layers));
}

std::shared_ptr<Module> make_model(std::string_view text, const ModelData& data, std::uint64_t seed,
                                   DType dtype, Device device) {
  return make_model(parse_model(text), data, seed, dtype, device);
}

}  // namespace lockstep::nn

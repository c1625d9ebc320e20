#include "engine/nn/layers.h"

#include <array>
#include <cmath>

#include "engine/autograd/ops/images.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

Linear::Linear(std::size_t in_features, std::size_t out_features, Rng& rng,
               const LinearOptions& options)
    : in_features_(in_features), out_features_(out_features), bias_(options.bias) {
  require(in_features > 0 && out_features > 0, ErrorCode::Usage, "Linear",
          "sizes must be positive, found in_features={} and out_features={}", in_features,
          out_features);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  const Device device = options.device.value_or(default_device());
  const Shape shape{out_features, in_features};
  const Shape bias_shape{out_features};
  if (const std::optional<double> deviation = options.standard_deviation) {
    register_parameter("weight", Tensor::normal(shape, 0, *deviation, rng, options.dtype, device));
    if (bias_ == Bias::yes) {
      register_parameter("bias", Tensor::zeros(bias_shape, options.dtype, device));
    }
    return;
  }
  register_parameter("weight", Tensor::uniform(shape, -bound, bound, rng, options.dtype, device));
  if (bias_ == Bias::yes) {
    register_parameter("bias",
                       Tensor::uniform(bias_shape, -bound, bound, rng, options.dtype, device));
  }
}

const Variable& Linear::bias() const {
  static const Variable none;
  return bias_ == Bias::yes ? own_parameters()[1].second : none;
}

std::string Linear::extra_text() const {
  return fmt::format("in_features={}, out_features={}, bias={}", in_features_, out_features_,
                     bias_ == Bias::yes ? "True" : "False");
}

std::string GELU::extra_text() const {
  return form_ == GeluForm::erf ? "approximate='none'" : "approximate='tanh'";
}

namespace {

// On the tensor's own device, so that a captured step counts too.
void add_one(const Tensor& counter) {
  const Tensor one = Tensor::full(counter.shape(), 1, counter.dtype(), counter.device());
  const std::array<ConstTensorView, 2> terms{counter.view(), one.view()};
  counter.bump_version();
  counter.backend().ordered_sum(counter.stream(), {terms, 1.0, counter.view()});
}

}  // namespace

BatchNorm::BatchNorm(std::size_t num_features, const BatchNormOptions& options)
    : num_features_(num_features), options_(options) {
  require(num_features > 0, ErrorCode::Usage, "BatchNorm", "num_features must be positive");
  const Shape shape{num_features};
  const Device device = options.device.value_or(default_device());
  if (options.affine == BatchNormOptions::Affine::yes) {
    register_parameter("weight", Tensor::full(shape, 1.0, options.dtype, device));
    register_parameter("bias", Tensor::zeros(shape, options.dtype, device));
  }
  register_buffer("running_mean", Tensor::zeros(shape, options.dtype, device));
  register_buffer("running_var", Tensor::full(shape, 1.0, options.dtype, device));
  register_buffer("num_batches_tracked", Tensor::zeros({}, DType::int64, device));
}

Variable BatchNorm::normalise(const Variable& rows) {
  using kernels::Statistics;
  BatchNormArguments arguments;
  if (options_.affine == BatchNormOptions::Affine::yes) {
    arguments.weight = own_parameters()[0].second;
    arguments.bias = own_parameters()[1].second;
  }
  arguments.running_mean = own_buffers()[0].second;
  arguments.running_var = own_buffers()[1].second;
  arguments.momentum = options_.momentum;
  arguments.epsilon = options_.epsilon;
  // A rank that idles has no rows, and so no statistics of its own.
  const bool takes_batch = is_training() && (rows.shape()[0] > 0 || shares_statistics());
  arguments.statistics = takes_batch ? Statistics::batch : Statistics::running;
  arguments.replicas = replicas_;
  Variable y = batch_norm(rows, arguments);
  if (takes_batch) add_one(own_buffers()[2].second);
  return y;
}

std::string BatchNorm::extra_text() const {
  const char* const affine = options_.affine == BatchNormOptions::Affine::yes ? "True" : "False";
  return fmt::format("{}, eps={}, momentum={}, affine={}, bias={}, track_running_stats=True",
                     num_features_, python_number(options_.epsilon),
                     python_number(options_.momentum), affine, affine);
}

Dropout::Dropout(double probability, std::uint64_t seed, std::uint32_t layer)
    : probability_(probability), seed_(seed), layer_(layer) {
  require(probability >= 0 && probability <= 1, ErrorCode::Usage, "Dropout",
          "dropout probability has to be between 0 and 1, but got {}", probability);
}

Variable Dropout::forward(const Variable& x) {
  return is_training() && probability_ > 0 ? dropout(x, probability_, seed_, layer_) : x;
}

std::string Dropout::extra_text() const {
  return fmt::format("p={}, inplace=False", python_number(probability_));
}

Variable Flatten::forward(const Variable& x) {
  const Shape& shape = x.shape();
  const int num_dims = static_cast<int>(shape.num_dims());
  const int first = start_dim_ < 0 ? start_dim_ + num_dims : start_dim_;
  const int last = end_dim_ < 0 ? end_dim_ + num_dims : end_dim_;
  require(0 <= first && first <= last && last < num_dims, ErrorCode::Shape, "Flatten",
          "input {} has no dimensions {} to {}", lockstep::to_string(shape), start_dim_, end_dim_);
  if (num_dims == 4 && first == 1 && last == 3) return flatten_images(x);
  std::vector<std::size_t> sizes;
  for (int dim = 0; dim < num_dims; ++dim) {
    const std::size_t size = shape[static_cast<std::size_t>(dim)];
    if (first < dim && dim <= last) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
  }
  return reshape(x, Shape(std::span<const std::size_t>(sizes)));
}

std::string Flatten::extra_text() const {
  return fmt::format("start_dim={}, end_dim={}", start_dim_, end_dim_);
}

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) {
    register_child(std::to_string(i), std::move(modules[i]));
  }
}

std::shared_ptr<Sequential> Sequential::with_names(std::vector<NamedModule> modules) {
  auto result = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>());
  for (NamedModule& module : modules) {
    result->register_child(std::move(module.first), std::move(module.second));
  }
  return result;
}

Module& Sequential::operator[](std::size_t index) const {
  require(index < size(), ErrorCode::Usage, "Sequential", "has {} modules, found index {}", size(),
          index);
  return *children()[index].second;
}

Variable run_in_turn(std::span<const NamedModule> modules, const Variable& x) {
  Variable y = x;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    Module& module = *modules[i].second;
    const auto* layer = dynamic_cast<const ActivatedLayer*>(&module);
    const auto* next = layer && i + 1 < modules.size()
                           ? dynamic_cast<const ActivationModule*>(modules[i + 1].second.get())
                           : nullptr;
    if (next) {
      y = module.run_forward([&] { return layer->forward(y, next->activation()); });
      ++i;
    } else {
      y = module(y);
    }
  }
  return y;
}

}  // namespace lockstep::nn

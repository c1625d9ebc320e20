#include "engine/nn/batch_norm.h"

#include <array>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/nn/module_text.h"

namespace lockstep::nn {
namespace {

// On the tensor's own device, so that a captured step counts too.
void add_one(const Tensor& counter) {
  const Tensor one = Tensor::full(counter.shape(), 1, counter.dtype(), counter.device());
  const std::array<ConstTensorView, 2> terms{counter.view(), one.view()};
  counter.bump_version();
  counter.backend().ordered_sum(counter.stream(), terms, 1.0, counter.view());
}

}  // namespace

BatchNorm1d::BatchNorm1d(std::size_t num_features, const BatchNormOptions& options)
    : num_features_(num_features), options_(options) {
  require(num_features > 0, ErrorCode::Usage, "BatchNorm1d", "num_features must be positive");
  const Shape shape{num_features};
  if (options.affine == BatchNormOptions::Affine::yes) {
    register_parameter("weight", Tensor::full(shape, 1.0, options.dtype));
    register_parameter("bias", Tensor::zeros(shape, options.dtype));
  }
  register_buffer("running_mean", Tensor::zeros(shape, options.dtype));
  register_buffer("running_var", Tensor::full(shape, 1.0, options.dtype));
  register_buffer("num_batches_tracked", Tensor::zeros({}, DType::int64));
}

Variable BatchNorm1d::forward(const Variable& x) {
  using Statistics = kernels::BatchNormForward::Statistics;
  BatchNormArguments arguments;
  if (options_.affine == BatchNormOptions::Affine::yes) {
    arguments.weight = own_parameters()[0].second;
    arguments.bias = own_parameters()[1].second;
  }
  arguments.running_mean = own_buffers()[0].second;
  arguments.running_var = own_buffers()[1].second;
  arguments.momentum = options_.momentum;
  arguments.epsilon = options_.epsilon;
  arguments.statistics = is_training() ? Statistics::batch : Statistics::running;
  Variable y = batch_norm(x, arguments);
  if (is_training()) add_one(own_buffers()[2].second);
  return y;
}

std::string BatchNorm1d::extra_text() const {
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats=True", num_features_,
                     python_number(options_.epsilon), python_number(options_.momentum),
                     options_.affine == BatchNormOptions::Affine::yes ? "True" : "False");
}

}  // namespace lockstep::nn

#include "engine/nn/batch_norm.h"

#include <array>

#include "engine/core/error.h"

namespace lockstep::nn {

namespace {

// On the tensor's own device, so that a captured step counts too.
void add_one(const Tensor& counter) {
  const Tensor one = Tensor::full(counter.shape(), 1, counter.dtype(), counter.device());
  const std::array<ConstTensorView, 2> terms{counter.view(), one.view()};
  counter.bump_version();
  counter.backend().ordered_reduce(counter.stream(), {terms, 1.0, counter.view()});
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

}  // namespace lockstep::nn

// Batch normalisation.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/core/half.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"
#include "kernels/norm_calls.h"

namespace lockstep {
namespace {

using kernels::Statistics;

// The moments of all replicas. On the CPU, where values can be checked, requires more than one row.
Tensor gather_moments(const Tensor& input, StatisticsExchange& replicas) {
  const std::size_t size = 2 * input.size(1) + 1;
  Tensor moments = Tensor::empty({size}, DType::float64, input.device());
  input.backend().batch_moments(input.stream(), {input.matrix(), moments.view()});
  moments = replicas.gather(moments);
  if (input.device().type == DeviceType::cpu) {
    const std::vector<double> values = moments.to_vector<double>();
    double rows = 0;
    for (std::size_t i = size - 1; i < values.size(); i += size) rows += values[i];
    require(rows > 1, ErrorCode::Shape, "batch_norm",
            "expected more than 1 value per channel when training, got {} over all replicas", rows);
  }
  return moments;
}

Tensor value_or_none(const Variable& variable) {
  return variable.defined() ? variable.value() : Tensor();
}

// The dtype of statistics, too. Without parameters and running statistics x's own decides.
DType dtype_of_parameters(const BatchNormArguments& arguments, const Variable& x) {
  if (arguments.weight.defined()) return arguments.weight.dtype();
  if (arguments.running_mean.defined()) return arguments.running_mean.dtype();
  return arithmetic_dtype(x.dtype());
}

void require_fits(const Tensor& input, const BatchNormArguments& arguments) {
  require(input.num_dims() == 2, ErrorCode::Shape, "batch_norm",
          "expected input [batch, features], found {}", to_string(input.shape()));
  const bool trains = arguments.statistics == Statistics::batch;
  require(!trains || arguments.replicas != nullptr || input.size(0) > 1, ErrorCode::Shape,
          "batch_norm", "expected more than 1 value per channel when training, got input size {}",
          to_string(input.shape()));
  const Tensor weight = value_or_none(arguments.weight);
  const Tensor bias = value_or_none(arguments.bias);
  const std::initializer_list<const Tensor*> all{&input, &weight, &bias, &arguments.running_mean,
                                                 &arguments.running_var};
  require_same_device("batch_norm", all);
  require_same_dtype("batch_norm",
                     {&weight, &bias, &arguments.running_mean, &arguments.running_var});
  require(trains || (arguments.running_mean.defined() && arguments.running_var.defined()),
          ErrorCode::State, "batch_norm", "evaluation needs the running mean and variance");
  for (const Tensor* tensor : {&weight, &bias, &arguments.running_mean, &arguments.running_var}) {
    require(!tensor->defined() || tensor->shape() == Shape{input.size(1)}, ErrorCode::Shape,
            "batch_norm", "input {} does not fit features {}", to_string(input.shape()),
            tensor->defined() ? to_string(tensor->shape()) : "");
  }
}

}  // namespace

// With x^ = (x - mean) * inverse_std, y = weight * x^ + bias, sums over the batch:
//   grad_bias = sum grad_y;  grad_weight = sum grad_y * x^
//   grad_x = weight * inverse_std * (grad_y - mean(grad_y) - x^ * mean(grad_y * x^))  in training;
//   grad_x = weight * inverse_std * grad_y  in evaluation, where the statistics are constants.
// Replicas that share their statistics take training's means over all their rows.
Variable batch_norm(const Variable& rows, const BatchNormArguments& arguments) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "BatchNorm");
  const DType dtype = dtype_of_parameters(arguments, rows);
  const Variable x = as_activation("batch_norm", rows, dtype);
  const Tensor& input = x.value();
  require_fits(input, arguments);
  const bool trains = arguments.statistics == Statistics::batch;
  const bool shares = trains && arguments.replicas != nullptr;
  if (trace::Observer* observer = trace::observer(); observer != nullptr && trains) {
    observer->buffer(trace::host_values(arguments.running_mean));
  }
  const Tensor weight = value_or_none(arguments.weight);
  const Shape features{input.size(1)};
  Tensor y = Tensor::empty_like(input);
  Tensor mean =
      trains ? Tensor::empty(features, dtype, input.device()) : arguments.running_mean.clone();
  Tensor inverse_std = Tensor::empty_like(mean);
  const Tensor moments = shares ? gather_moments(input, *arguments.replicas) : Tensor();
  const Statistics statistics = shares ? Statistics::shared : arguments.statistics;
  y.backend().batch_norm_forward(y.stream(), {.x = input.matrix(),
                                              .weight = view_or_none(weight),
                                              .bias = view_or_none(value_or_none(arguments.bias)),
                                              .y = y.matrix(),
                                              .mean = mean.view(),
                                              .inverse_std = inverse_std.view(),
                                              .running_mean = view_or_none(arguments.running_mean),
                                              .running_var = view_or_none(arguments.running_var),
                                              .momentum = arguments.momentum,
                                              .epsilon = arguments.epsilon,
                                              .statistics = statistics,
                                              .moments = view_or_none(moments)});
  for (const Tensor* running : {&arguments.running_mean, &arguments.running_var}) {
    if (trains && running->defined()) running->bump_version();
  }
  const auto backward = [statistics, replicas = arguments.replicas](const Node& node,
                                                                    const Gradients& grad_outputs) {
    Gradients grads = node.gradient_buffers();
    const Tensor& kept = node.saved(0);
    // The gradients of weight and bias do not depend on the weight's values.
    const Tensor& kept_weight = grads[0].defined() ? node.saved(1) : node.unchecked(1);
    kernels::BatchNormBackward call{.x = kept.matrix(),
                                    .weight = view_or_none(kept_weight),
                                    .mean = node.saved(2).view(),
                                    .inverse_std = node.saved(3).view(),
                                    .grad_y = grad_outputs[0].matrix(),
                                    .grad_x = grads[0].defined() ? grads[0].matrix() : MatrixView{},
                                    .grad_weight = view_or_none(grads[1]),
                                    .grad_bias = view_or_none(grads[2]),
                                    .statistics = statistics};
    if (statistics != Statistics::shared) {
      kept.backend().batch_norm_backward(kept.stream(), call);
      return grads;
    }
    const Tensor sums = Tensor::empty({2 * kept.size(1) + 1}, DType::float64, kept.device());
    call.sums = sums.view();
    kept.backend().batch_norm_sums(kept.stream(), {call});
    replicas->sum(sums);
    if (grads[0].defined()) kept.backend().batch_norm_backward(kept.stream(), call);
    return grads;
  };
  return record("BatchNorm", {x, arguments.weight, arguments.bias}, std::move(y),
                {input, weight, mean, inverse_std}, backward);
}

}  // namespace lockstep

// Layer normalisation.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/sequences.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"
#include "kernels/norm_calls.h"

namespace lockstep {

// With x^ = (x - mean) * inverse_std, y = weight * x^ + bias, g = grad_y * weight:
//   grad_bias = sum over rows of grad_y;  grad_weight = sum over rows of grad_y * x^
//   grad_x = inverse_std * (g - mean(g) - x^ * mean(g * x^)), means over the row's features
Variable layer_norm(const Variable& activations, const Variable& weight, const Variable& bias,
                    double epsilon) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "LayerNorm");
  const Variable x = as_activation("layer_norm", activations, weight.dtype());
  const Tensor& input = x.value();
  require_same_device("layer_norm", {&input, &weight.value(), &bias.value()});
  require_same_dtype("layer_norm", {&weight.value(), &bias.value()});
  const std::size_t features = weight.value().num_elements();
  require(input.num_dims() > 0 && features > 0 && input.size(input.num_dims() - 1) == features &&
              weight.shape() == Shape{features} && bias.shape() == Shape{features},
          ErrorCode::Shape, "layer_norm", "input {} does not fit weight {} and bias {}",
          to_string(input.shape()), to_string(weight.shape()), to_string(bias.shape()));
  const MatrixView rows = rows_of(input);
  Tensor y = Tensor::empty(input.shape(), input.dtype(), input.device());
  Tensor mean = Tensor::empty({rows.rows}, weight.dtype(), input.device());
  Tensor inverse_std = Tensor::empty_like(mean);
  y.backend().layer_norm_forward(y.stream(), {.x = rows,
                                              .weight = weight.value().view(),
                                              .bias = bias.value().view(),
                                              .y = rows_of(y),
                                              .mean = mean.view(),
                                              .inverse_std = inverse_std.view(),
                                              .epsilon = epsilon});
  const auto backward = [](const Node& node, const Gradients& grad_outputs) {
    Gradients grads = node.gradient_buffers();
    const Tensor& kept = node.saved(0);
    // The gradients of weight and bias do not depend on the weight's values.
    const Tensor& kept_weight = grads[0].defined() ? node.saved(1) : node.unchecked(1);
    kept.backend().layer_norm_backward(
        kept.stream(), {.x = rows_of(kept),
                        .weight = kept_weight.view(),
                        .mean = node.saved(2).view(),
                        .inverse_std = node.saved(3).view(),
                        .grad_y = rows_of(grad_outputs[0]),
                        .grad_x = grads[0].defined() ? rows_of(grads[0]) : MatrixView{},
                        .grad_weight = view_or_none(grads[1]),
                        .grad_bias = view_or_none(grads[2])});
    return grads;
  };
  return record("LayerNorm", {x, weight, bias}, std::move(y),
                {input, weight.value(), mean, inverse_std}, backward);
}

}  // namespace lockstep

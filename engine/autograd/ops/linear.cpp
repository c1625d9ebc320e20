#include <utility>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/linear_layer.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// GPUs want rows of a saved preactivation to begin at multiples of 8 elements.
Tensor empty_preactivation(std::size_t batch, std::size_t features, const Tensor& like) {
  return Tensor::empty({batch, (features + 7) / 8 * 8}, like.dtype(), like.device());
}

// With z = x * W^T + b and y = f(z):
//   grad_z = grad_y * f'     [batch, out]
//   grad_x = grad_z * W      [batch, in]
//   grad_W = grad_z^T * x    [out, in]
//   grad_b = column sums of grad_z
// In a chain a layer leaves its activation to the next one: grad_x is multiplied by that derivative
// there, and arrives here as grad_z. Where the device does that faster, grad_b is summed there,
// too.
class LinearNode final : public Node {
 public:
  LinearNode(Tensor x, Tensor weight, Tensor y, PendingActivation own, PendingActivation input)
      : x_(std::move(x)),
        weight_(std::move(weight)),
        y_(std::move(y)),
        own_(std::move(own)),
        input_(std::move(input)) {}
  const char* name() const override { return "Linear"; }

  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_y = grad_outputs[0];
    Gradients grads(num_inputs());
    kernels::LinearBackward call;
    // Values count where they enter a gradient that somebody wants; the first layer's weight does
    // not.
    const bool reads_x =
        wants_gradient(1) || (wants_gradient(0) && input_.kind != Activation::none);
    call.x = (reads_x ? unpack(x_) : x_.unchecked()).matrix();
    call.weight = (wants_gradient(0) ? unpack(weight_) : weight_.unchecked()).matrix();
    call.grad_y = grad_y.matrix();
    call.activation = own_.kind;
    Tensor scratch;
    if (own_.kind != Activation::none) {
      scratch = Tensor::empty(grad_y.shape(), grad_y.dtype(), grad_y.device());
      call.scratch = scratch.matrix();
      if (y_.defined()) call.y = unpack(y_).matrix();
      if (own_.preactivation.defined()) {
        call.preactivation = preactivation_view(own_.preactivation, grad_y.size(1));
      }
    }
    if (wants_gradient(0)) {
      grads[0] = gradient_buffer(0);
      call.grad_x = grads[0].matrix();
      take_gradient_of(input_, call);
      if (input_.mask.defined()) call.input_mask = input_.mask.view();
      if (input_.kind != Activation::none) {
        // Only a layer of a chain leaves its activation.
        call.input_grad_bias = static_cast<LinearNode&>(*edge(0).node).grad_bias_for(call);
      }
    }
    if (wants_gradient(1)) {
      grads[1] = gradient_buffer(1);
      call.grad_weight = grads[1].matrix();
    }
    if (grad_bias_.defined()) {
      grads[2] = std::exchange(grad_bias_, {});
    } else if (has_grad_bias()) {
      grads[2] = gradient_buffer(2);
      call.grad_bias = grads[2].view();
    }
    grad_y.backend().linear_backward(grad_y.stream(), call);
    return grads;
  }
  void release_saved() override {
    x_ = weight_ = y_ = {};
    own_ = input_ = {};
    grad_bias_ = {};
  }

 private:
  bool has_grad_bias() const { return num_inputs() > 2 && wants_gradient(2); }

  // Memory for this layer's bias gradient, if the layer after it had better find it together with
  // this one's grad_y, which its call is about to find. No data otherwise.
  TensorView grad_bias_for(const kernels::LinearBackward& after) {
    if (!has_grad_bias() || !wants_gradient(1)) return {};
    const Tensor& weight = weight_.unchecked();
    const std::size_t in = weight.size(1), out = weight.size(0);
    kernels::LinearBackward own;
    own.x = x_.unchecked().matrix();
    own.weight = weight.matrix();
    own.grad_weight = matrix_view(static_cast<void*>(nullptr), weight.dtype(), out, in);
    own.grad_bias = {nullptr, weight.dtype(), out};
    if (!weight.backend().sums_input_gradient(weight.stream(), after, own)) return {};
    grad_bias_ = gradient_buffer(2);
    return grad_bias_.view();
  }

  SavedTensor x_;
  SavedTensor weight_;
  SavedTensor y_;            // unless own_ is none or needs the preactivation
  PendingActivation own_;    // unless it was left to the next layer
  PendingActivation input_;  // that the layer before left to this one
  Tensor grad_bias_;         // once the layer after this one has found it
};

ChainLink run_layer(ChainLink before, const LinearLayer& layer, ActivationGradient taken_by) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Linear");
  const auto& [weight, bias, activation] = layer;
  const Tensor& input = before.y.value();
  const Tensor bias_value = bias.defined() ? bias.value() : Tensor();
  require_layer_fits(input, weight.value(), bias_value);
  const std::size_t out = weight.value().size(0);
  Tensor y = Tensor::empty({input.size(0), out}, input.dtype(), input.device());
  kernels::LinearForward call;
  call.x = input.matrix();
  call.weight = weight.value().matrix();
  if (bias.defined()) call.bias = bias_value.view();
  call.y = y.matrix();
  call.activation = activation;
  PendingActivation own{activation, {}, {}};
  PendingActivation left;
  const bool is_recorded = needs_node(std::initializer_list<Variable>{before.y, weight, bias});
  if (is_recorded && kernels::needs_preactivation(activation)) {
    own.preactivation = empty_preactivation(input.size(0), out, y);
    call.preactivation = preactivation_view(own.preactivation, out);
  }
  if (is_recorded && taken_by == ActivationGradient::next_product) {
    if (const std::size_t num_bytes = y.backend().linear_mask_bytes(y.stream(), call)) {
      own.mask = Tensor::empty({num_bytes}, DType::uint8, input.device());
      call.mask = own.mask.view();
    }
  }
  y.backend().linear_forward(y.stream(), call);
  if (is_recorded && taken_by != ActivationGradient::own) left = std::exchange(own, {});
  const bool keeps_y = own.kind != Activation::none && !own.preactivation.defined();
  Tensor saved_y = keeps_y ? y : Tensor();
  Variable result =
      record<LinearNode>({before.y, weight, bias}, std::move(y), input, weight.value(),
                         std::move(saved_y), std::move(own), std::move(before.left));
  return {std::move(result), std::move(left)};
}

}  // namespace

MatrixView preactivation_view(const Tensor& padded, std::size_t features) {
  MatrixView view = padded.matrix();
  view.cols = features;
  return view;
}

void require_layer_fits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require_same_device("linear", {&x, &weight, &bias});
  require_same_dtype("linear", {&x, &weight, &bias});
  if (x.num_dims() != 2 || weight.num_dims() != 2 || x.size(1) != weight.size(1)) {
    fail(ErrorCode::Shape, "linear",
         "input {} does not fit weight {}: expected [batch, in] and [out, in]",
         to_string(x.shape()), to_string(weight.shape()));
  }
  if (bias.defined() && bias.shape() != Shape{weight.size(0)}) {
    fail(ErrorCode::Shape, "linear", "bias {} does not fit weight {}", to_string(bias.shape()),
         to_string(weight.shape()));
  }
}

ChainLink run_layers(ChainLink input, std::span<const LinearLayer> layers,
                     ActivationGradient of_last) {
  for (const LinearLayer& layer : layers) {
    const bool is_last = &layer == &layers.back();
    input =
        run_layer(std::move(input), layer, is_last ? of_last : ActivationGradient::next_product);
  }
  return input;
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                Activation activation) {
  return run_layer({x, {}}, {weight, bias, activation}, ActivationGradient::own).y;
}

Variable linear_chain(const Variable& x, std::span<const LinearLayer> layers) {
  return run_layers({x, {}}, layers, ActivationGradient::own).y;
}

}  // namespace lockstep

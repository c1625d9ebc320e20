#include <utility>

#include "engine/audit/switch.h"
#include "engine/autograd/backward_pass.h"
#include "engine/autograd/grad_mode.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/cross_entropy.h"
#include "engine/autograd/ops/linear_layer.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// With logits = x * W^T + b, loss their cross-entropy, and f the activation that made x:
//   grad_logits = (softmax(logits) - onehot(label)) * grad_loss (/ rows for mean)  [batch, classes]
//   grad_x = grad_logits * W * f'     [batch, in]
//   grad_W = grad_logits^T * x        [classes, in]
//   grad_b = column sums of grad_logits
// The first two were found with the loss, for the gradient of the loss that was foreseen.
class LinearCrossEntropyNode final : public Node {
 public:
  struct Foreseen {
    SavedTensor grad_loss;
    Tensor grad_logits;
    Tensor grad_x;  // undefined where nobody wants it
  };

  LinearCrossEntropyNode(Tensor x, Tensor weight, Tensor probabilities, Tensor labels,
                         Reduction reduction, PendingActivation input, Foreseen foreseen)
      : x_(std::move(x)),
        weight_(std::move(weight)),
        probabilities_(std::move(probabilities)),
        labels_(std::move(labels)),
        reduction_(reduction),
        input_(std::move(input)),
        foreseen_(std::move(foreseen)) {}
  const char* name() const override { return "LinearCrossEntropy"; }

  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_loss = grad_outputs[0];
    const Tensor& labels = unpack(labels_);
    Gradients grads(num_inputs());
    // Once: who is given it may add to it.
    Tensor grad_logits = std::exchange(foreseen_.grad_logits, {});
    grads[0] = std::exchange(foreseen_.grad_x, {});
    const bool is_foreseen = grad_logits.defined() && is_unchanged(foreseen_.grad_loss, grad_loss);
    kernels::LinearBackward call;
    call.x = unpack(x_).matrix();
    // Its values count where they are still to enter a gradient.
    const bool reads_weight = !is_foreseen && wants_gradient(0);
    call.weight = (reads_weight ? unpack(weight_) : weight_.unchecked()).matrix();
    if (!is_foreseen) {
      const Tensor& probabilities = unpack(probabilities_);
      grad_logits =
          Tensor::empty(probabilities.shape(), probabilities.dtype(), probabilities.device());
      grad_logits.backend().softmax_cross_entropy_backward(
          grad_logits.stream(), probabilities.matrix(), labels.view(), reduction_, grad_loss.view(),
          grad_logits.matrix());
      if (wants_gradient(0)) {
        grads[0] = gradient_buffer(0);
        call.grad_x = grads[0].matrix();
        take_gradient_of(input_, call);
      }
    }
    call.grad_y = grad_logits.matrix();
    if (wants_gradient(1)) {
      grads[1] = gradient_buffer(1);
      call.grad_weight = grads[1].matrix();
    }
    if (num_inputs() > 2 && wants_gradient(2)) {
      grads[2] = gradient_buffer(2);
      call.grad_bias = grads[2].view();
    }
    grad_logits.backend().linear_backward(grad_logits.stream(), call);
    return grads;
  }
  void release_saved() override {
    x_ = weight_ = probabilities_ = labels_ = {};
    input_ = {};
    foreseen_ = {};
  }

 private:
  SavedTensor x_;
  SavedTensor weight_;
  SavedTensor probabilities_;
  SavedTensor labels_;
  Reduction reduction_;
  PendingActivation input_;
  Foreseen foreseen_;
};

// The last layer and the loss, from what the layers before gave.
Variable run_last(ChainLink before, const LinearLayer& layer, const Tensor& labels,
                  Reduction reduction, Tensor grad) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "LinearCrossEntropy");
  const Tensor& x = before.y.value();
  const Tensor& weight = layer.weight.value();
  const Tensor bias = layer.bias.defined() ? layer.bias.value() : Tensor();
  require_layer_fits(x, weight, bias);
  const Shape logits{x.size(0), weight.size(0)};
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  require_cross_entropy(logits, loss, labels, grad);
  Tensor probabilities = Tensor::empty(logits, x.dtype(), x.device());
  if (!grad.defined()) grad = kept_scalar(1, x.dtype(), x.device());
  LinearCrossEntropyNode::Foreseen foreseen{
      std::move(grad), Tensor::empty(logits, x.dtype(), x.device()), {}};
  kernels::LinearCrossEntropy call;
  call.x = x.matrix();
  call.weight = weight.matrix();
  if (bias.defined()) call.bias = bias.view();
  call.labels = labels.view();
  call.reduction = reduction;
  call.probabilities = probabilities.matrix();
  call.loss = loss.view();
  call.gradient = {foreseen.grad_loss.unchecked().view(), foreseen.grad_logits.matrix()};
  if (before.y.requires_grad()) {
    foreseen.grad_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    call.grad_x = foreseen.grad_x.matrix();
    take_gradient_of(before.left, call);
  }
  loss.backend().linear_cross_entropy(loss.stream(), call);
  return record<LinearCrossEntropyNode>({before.y, layer.weight, layer.bias}, std::move(loss), x,
                                        weight, std::move(probabilities), labels, reduction,
                                        std::move(before.left), std::move(foreseen));
}

// Under lockstep doctor the layers and the loss are noted one by one.
bool is_fused(std::span<const LinearLayer> layers, const Variable& x) {
  if (layers.empty() || layers.back().activation != Activation::none) return false;
  const Variable& weight = layers.back().weight;
  const bool are_matrices = weight.shape().num_dims() == 2 && x.shape().num_dims() == 2;
  return grad_enabled() && weight.requires_grad() && are_matrices && !audit::is_on() &&
         weight.value().backend().fuses_linear_cross_entropy(weight.dtype(), x.shape()[0],
                                                             weight.shape()[1], weight.shape()[0]);
}

}  // namespace

Variable linear_cross_entropy(const Variable& x, std::span<const LinearLayer> layers,
                              const Tensor& labels, Reduction reduction, Tensor grad) {
  if (!is_fused(layers, x)) {
    return cross_entropy(linear_chain(x, layers), labels, reduction, std::move(grad));
  }
  const auto before = layers.first(layers.size() - 1);
  return run_last(run_layers({x, {}}, before, ActivationGradient::next_loss), layers.back(), labels,
                  reduction, std::move(grad));
}

}  // namespace lockstep

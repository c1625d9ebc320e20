#include <utility>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// loss = mean or sum over rows of -log softmax(logits)[label]:
// grad_logits = (softmax(logits) - onehot(label)) * grad_loss (/ rows for mean).
class CrossEntropyNode final : public Node {
 public:
  CrossEntropyNode(Tensor probabilities, Tensor labels, Reduction reduction, Logits use,
                   std::shared_ptr<const void> told)
      : probabilities_(std::move(probabilities)),
        labels_(std::move(labels)),
        reduction_(reduction),
        use_(use),
        told_(std::move(told)) {}
  const char* name() const override { return "CrossEntropy"; }
  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& labels = unpack(labels_);
    if (trace::Observer* observer = trace::observer(); observer != nullptr && told_) {
      observer->loss_backward(running_pass_number(), told_, trace::host_values(grad_outputs[0]));
    }
    const Tensor& probabilities = unpack(probabilities_);
    Tensor grad_logits = use_ == Logits::consume ? probabilities : gradient_buffer(0);
    if (use_ == Logits::consume) grad_logits.bump_version();
    grad_logits.backend().softmax_cross_entropy_backward(
        grad_logits.stream(), probabilities.matrix(), labels.view(), reduction_,
        grad_outputs[0].view(), grad_logits.matrix());
    return {grad_logits};
  }
  void release_saved() override { probabilities_ = labels_ = {}; }

 private:
  SavedTensor probabilities_;
  SavedTensor labels_;
  Reduction reduction_;
  Logits use_;
  std::shared_ptr<const void> told_;
};

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& labels, Reduction reduction,
                       Logits use) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "CrossEntropy");
  const Tensor& x = logits.value();
  require_same_device("cross_entropy", {&x, &labels});
  if (x.num_dims() != 2 || labels.shape() != Shape{x.size(0)}) {
    fail(ErrorCode::Shape, "cross_entropy",
         "expected logits [batch, classes] and labels [batch], found {} and {}",
         to_string(x.shape()), to_string(labels.shape()));
  }
  require(labels.dtype() == DType::int64, ErrorCode::DType, "cross_entropy",
          "labels must be int64, found {}", to_string(labels.dtype()));
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  Tensor probabilities =
      use == Logits::consume ? x : Tensor::empty(x.shape(), x.dtype(), x.device());
  if (use == Logits::consume) x.bump_version();
  loss.backend().softmax_cross_entropy_forward(loss.stream(), x.matrix(), labels.view(), reduction,
                                               probabilities.matrix(), loss.view());
  std::shared_ptr<const void> told;
  if (trace::Observer* observer = trace::observer()) {
    told = observer->loss({x.size(0), reduction == Reduction::mean, trace::host_values(loss),
                           trace::host_values(labels)});
  }
  return record<CrossEntropyNode>({logits}, std::move(loss), std::move(probabilities), labels,
                                  reduction, use, std::move(told));
}

namespace {

// loss = mean or sum of (x - target)^2: grad_x = 2 (x - target) * grad_loss (/ elements for mean).
class MseLossNode final : public Node {
 public:
  MseLossNode(Tensor x, Tensor target, Reduction reduction, std::shared_ptr<const void> told)
      : x_(std::move(x)),
        target_(std::move(target)),
        reduction_(reduction),
        told_(std::move(told)) {}
  const char* name() const override { return "MseLoss"; }
  Gradients backward(const Gradients& grad_outputs) override {
    if (trace::Observer* observer = trace::observer(); observer != nullptr && told_) {
      observer->loss_backward(running_pass_number(), told_, trace::host_values(grad_outputs[0]));
    }
    Tensor grad_x = gradient_buffer(0);
    grad_x.backend().mse_backward(grad_x.stream(), unpack(x_).view(), unpack(target_).view(),
                                  reduction_, grad_outputs[0].view(), grad_x.view());
    return {grad_x};
  }
  void release_saved() override { x_ = target_ = {}; }

 private:
  SavedTensor x_;
  SavedTensor target_;
  Reduction reduction_;
  std::shared_ptr<const void> told_;
};

}  // namespace

Variable mse_loss(const Variable& x, const Tensor& target, Reduction reduction) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "MseLoss");
  require_same_device("mse_loss", {&x.value(), &target});
  require_same_dtype("mse_loss", {&x.value(), &target});
  require_same_shape("mse_loss", x.value(), target);
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  loss.backend().mse_forward(loss.stream(), x.value().view(), target.view(), reduction,
                             loss.view());
  std::shared_ptr<const void> told;
  if (trace::Observer* observer = trace::observer()) {
    const std::size_t num_rows = x.shape().num_dims() == 0 ? 1 : x.shape()[0];
    told = observer->loss({num_rows, reduction == Reduction::mean, trace::host_values(loss), {}});
  }
  return record<MseLossNode>({x}, std::move(loss), x.value(), target, reduction, std::move(told));
}

}  // namespace lockstep

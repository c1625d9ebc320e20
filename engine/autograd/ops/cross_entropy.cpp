#include <utility>

#include "engine/audit/losses.h"
#include "engine/audit/switch.h"
#include "engine/audit/values.h"
#include "engine/autograd/backward_pass.h"
#include "engine/autograd/backward_state.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/cross_entropy.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// loss = mean or sum over rows of -log softmax(logits)[label]:
// grad_logits = (softmax(logits) - onehot(label)) * grad_loss (/ rows for mean).
class CrossEntropyNode final : public Node {
 public:
  // What was found with the loss: the gradient of the logits for one gradient of the loss.
  struct Foreseen {
    SavedTensor grad_loss;
    Tensor grad_logits;  // or undefined
  };

  CrossEntropyNode(Tensor probabilities, Tensor labels, Reduction reduction, Foreseen foreseen,
                   std::shared_ptr<const audit::Loss> noted)
      : probabilities_(std::move(probabilities)),
        labels_(std::move(labels)),
        reduction_(reduction),
        foreseen_(std::move(foreseen)),
        noted_(std::move(noted)) {}
  const char* name() const override { return "CrossEntropy"; }
  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& labels = unpack(labels_);
    if (noted_) {
      audit::note_loss_backward(audited_pass(), noted_, audit::values_of(grad_outputs[0]));
    }
    // Once: who is given it may add to it.
    if (is_foreseen(grad_outputs[0])) return {std::exchange(foreseen_.grad_logits, {})};
    Tensor grad_logits = gradient_buffer(0);
    grad_logits.backend().softmax_cross_entropy_backward(
        grad_logits.stream(), unpack(probabilities_).matrix(), labels.view(), reduction_,
        grad_outputs[0].view(), grad_logits.matrix());
    return {grad_logits};
  }
  void release_saved() override {
    probabilities_ = labels_ = {};
    foreseen_ = {};
  }

 private:
  bool is_foreseen(const Tensor& grad_loss) const {
    return foreseen_.grad_logits.defined() && is_unchanged(foreseen_.grad_loss, grad_loss);
  }

  SavedTensor probabilities_;
  SavedTensor labels_;
  Reduction reduction_;
  Foreseen foreseen_;
  std::shared_ptr<const audit::Loss> noted_;
};

// The gradient of the loss that backward() will begin with, and memory for that of the logits,
// where the device finds it together with the loss.
CrossEntropyNode::Foreseen foresee(const Variable& logits, Tensor grad) {
  const Tensor& x = logits.value();
  const bool is_wanted = needs_node(std::initializer_list<Variable>{logits}) &&
                         x.backend().fuses_cross_entropy_gradient(x.size(1));
  if (!is_wanted) return {};
  if (!grad.defined()) grad = kept_scalar(1, x.dtype(), x.device());
  return {std::move(grad), Tensor::empty(x.shape(), x.dtype(), x.device())};
}

}  // namespace

void require_cross_entropy(const Shape& logits, const Tensor& loss, const Tensor& labels,
                           const Tensor& grad) {
  require_same_device("cross_entropy", {&loss, &labels});
  if (logits.num_dims() != 2 || labels.shape() != Shape{logits[0]}) {
    fail(ErrorCode::Shape, "cross_entropy",
         "expected logits [batch, classes] and labels [batch], found {} and {}", to_string(logits),
         to_string(labels.shape()));
  }
  require(labels.dtype() == DType::int64, ErrorCode::DType, "cross_entropy",
          "labels must be int64, found {}", to_string(labels.dtype()));
  if (!grad.defined()) return;
  require_same_shape("cross_entropy", loss, grad);
  require_same_device("cross_entropy", {&loss, &grad});
  require_same_dtype("cross_entropy", {&loss, &grad});
}

bool is_unchanged(const SavedTensor& foreseen, const Tensor& given) {
  return !foreseen.was_changed() && foreseen.unchecked().raw() == given.raw();
}

Variable cross_entropy(const Variable& logits, const Tensor& labels, Reduction reduction,
                       Tensor grad) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "CrossEntropy");
  const Tensor& x = logits.value();
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  require_cross_entropy(x.shape(), loss, labels, grad);
  Tensor probabilities = Tensor::empty(x.shape(), x.dtype(), x.device());
  CrossEntropyNode::Foreseen foreseen = foresee(logits, std::move(grad));
  kernels::CrossEntropyGradient gradient;
  if (foreseen.grad_logits.defined()) {
    gradient = {foreseen.grad_loss.unchecked().view(), foreseen.grad_logits.matrix()};
  }
  loss.backend().softmax_cross_entropy_forward(loss.stream(), x.matrix(), labels.view(), reduction,
                                               probabilities.matrix(), loss.view(), gradient);
  std::shared_ptr<const audit::Loss> noted;
  if (audit::is_on()) {
    noted = audit::note_loss(x.size(0),
                             reduction == Reduction::mean ? audit::Mean::yes : audit::Mean::no,
                             audit::values_of(loss), audit::values_of(labels));
  }
  return record<CrossEntropyNode>({logits}, std::move(loss), std::move(probabilities), labels,
                                  reduction, std::move(foreseen), std::move(noted));
}

}  // namespace lockstep

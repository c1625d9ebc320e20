#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// loss = mean or sum over rows of -log softmax(logits)[label]:
// grad_logits = (softmax(logits) - onehot(label)) * grad_loss (/ rows for mean).
class CrossEntropyNode final : public Node {
 public:
  CrossEntropyNode(Tensor probabilities, Tensor labels, Reduction reduction)
      : probabilities_(std::move(probabilities)),
        labels_(std::move(labels)),
        reduction_(reduction) {}
  const char* name() const override { return "CrossEntropy"; }
  Gradients backward(const Gradients& grad_outputs) override {
    Tensor grad_logits = gradient_buffer(0);
    grad_logits.backend().softmax_cross_entropy_backward(
        grad_logits.stream(), unpack(probabilities_).matrix(), unpack(labels_).view(), reduction_,
        grad_outputs[0].view(), grad_logits.matrix());
    return {grad_logits};
  }
  void release_saved() override { probabilities_ = labels_ = {}; }

 private:
  SavedTensor probabilities_;
  SavedTensor labels_;
  Reduction reduction_;
};

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& labels, Reduction reduction) {
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
  Tensor probabilities = Tensor::empty(x.shape(), x.dtype(), x.device());
  Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  loss.backend().softmax_cross_entropy_forward(loss.stream(), x.matrix(), labels.view(), reduction,
                                               probabilities.matrix(), loss.view());
  return record<CrossEntropyNode>({logits}, std::move(loss), std::move(probabilities), labels,
                                  reduction);
}

}  // namespace lockstep

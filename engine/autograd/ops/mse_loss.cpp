#include "engine/audit/losses.h"
#include "engine/audit/switch.h"
#include "engine/audit/values.h"
#include "engine/autograd/backward_state.h"
#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// loss = mean or sum of (x - target)^2: grad_x = 2 (x - target) * grad_loss (/ elements for mean).
class MseLossNode final : public Node {
 public:
  MseLossNode(Tensor x, Tensor target, Reduction reduction,
              std::shared_ptr<const audit::Loss> noted)
      : x_(std::move(x)),
        target_(std::move(target)),
        reduction_(reduction),
        noted_(std::move(noted)) {}
  const char* name() const override { return "MseLoss"; }
  Gradients backward(const Gradients& grad_outputs) override {
    if (noted_) {
      audit::note_loss_backward(audited_pass(), noted_, audit::values_of(grad_outputs[0]));
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
  std::shared_ptr<const audit::Loss> noted_;
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
  std::shared_ptr<const audit::Loss> noted;
  if (audit::is_on()) {
    noted = audit::note_loss(x.shape().num_dims() == 0 ? 1 : x.shape()[0],
                             reduction == Reduction::mean ? audit::Mean::yes : audit::Mean::no,
                             audit::values_of(loss));
  }
  return record<MseLossNode>({x}, std::move(loss), x.value(), target, reduction, std::move(noted));
}

}  // namespace lockstep

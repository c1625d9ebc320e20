#include "engine/autograd/node.h"
#include "engine/autograd/ops/ops.h"

namespace lockstep {
namespace {

// The result shares x's memory; so does its gradient.
class ReshapeNode final : public Node {
 public:
  const char* name() const override { return "Reshape"; }
  Gradients backward(const Gradients& grad_outputs) override {
    return {grad_outputs[0].reshape(edge(0).shape)};
  }
  void release_saved() override {}
};

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  return record<ReshapeNode>({x}, x.value().reshape(shape));
}

}  // namespace lockstep

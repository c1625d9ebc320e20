// Rows of a table, by token and by position.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/sequences.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"

namespace lockstep {
namespace {

// Each row of the table gets the gradients of all places that have it.
class EmbeddingNode final : public Node {
 public:
  explicit EmbeddingNode(Tensor tokens) : tokens_(std::move(tokens)) {}
  const char* name() const override { return "Embedding"; }
  Gradients backward(const Gradients& grad_outputs) override {
    const Tensor& grad_y = grad_outputs[0];
    Gradients grads = gradient_buffers();
    MatrixView to_positions;
    if (grads[1].defined()) {
      const std::size_t length = grad_y.size(1);
      to_positions = grads[1].rows(0, length).matrix();
      if (length < grads[1].size(0)) grads[1].rows(length, grads[1].size(0)).fill(0);
    }
    grad_y.backend().embedding_backward(grad_y.stream(), unpack(tokens_).view(), rows_of(grad_y),
                                        grads[0].defined() ? grads[0].matrix() : MatrixView{},
                                        to_positions);
    return grads;
  }
  void release_saved() override { tokens_ = {}; }

 private:
  SavedTensor tokens_;
};

}  // namespace

Variable embedding(const Tensor& tokens, const Variable& weight, const Variable& positions) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Embedding");
  const Tensor& table = weight.value();
  const Tensor places = positions.defined() ? positions.value() : Tensor();
  require_same_device("embedding", {&tokens, &table, &places});
  require_same_dtype("embedding", {&table, &places});
  require(tokens.dtype() == DType::int64, ErrorCode::DType, "embedding",
          "tokens must be int64, found {}", to_string(tokens.dtype()));
  require(tokens.num_dims() == 2 && table.num_dims() == 2, ErrorCode::Shape, "embedding",
          "expected tokens [batch, length] and a weight [vocabulary, channels], found {} and {}",
          to_string(tokens.shape()), to_string(table.shape()));
  const std::size_t length = tokens.size(1);
  require(!places.defined() || (places.num_dims() == 2 && places.size(1) == table.size(1)),
          ErrorCode::Shape, "embedding", "positions {} do not fit the weight {}",
          places.defined() ? to_string(places.shape()) : "", to_string(table.shape()));
  require(!places.defined() || length <= places.size(0), ErrorCode::Shape, "embedding",
          "sequences of {} tokens are longer than the {} positions that there are", length,
          places.defined() ? places.size(0) : 0);
  Tensor y = Tensor::empty({tokens.size(0), length, table.size(1)}, table.dtype(), table.device());
  y.backend().embedding_forward(
      y.stream(), tokens.view(), table.matrix(),
      places.defined() ? ConstMatrixView(places.rows(0, length).matrix()) : ConstMatrixView{},
      rows_of(y));
  return record<EmbeddingNode>({weight, positions}, std::move(y), tokens);
}

}  // namespace lockstep

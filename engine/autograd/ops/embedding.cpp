// Rows of a table, by token and by position.
#include "engine/autograd/node.h"
#include "engine/autograd/ops/sequences.h"
#include "engine/core/error.h"
#include "engine/trace/span.h"
#include "kernels/matmul_precision.h"
#include "kernels/sequence_calls.h"

namespace lockstep {
namespace {

// The first `count` rows of a gradient; no value used the others, and they become zero.
MatrixView used_rows(const Tensor& grad, std::size_t count) {
  if (!grad.defined()) return {};
  if (count < grad.size(0)) grad.rows(count, grad.size(0)).fill(0);
  return grad.rows(0, count).matrix();
}

}  // namespace

// Each row of the table gets the gradients of all places that use it.
Variable embedding(const Tensor& tokens, const Variable& weight, const Variable& positions,
                   std::size_t num_rows) {
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
  if (num_rows == 0) num_rows = table.size(0);
  require(num_rows <= table.size(0), ErrorCode::Shape, "embedding",
          "there are no {} rows in the weight {}", num_rows, to_string(table.shape()));
  Tensor y = Tensor::empty({tokens.size(0), length, table.size(1)},
                           kernels::activation_dtype(table.dtype()), table.device());
  y.backend().embedding_forward(
      y.stream(), {.tokens = tokens.view(),
                   .weight = table.rows(0, num_rows).matrix(),
                   .positions = places.defined() ? ConstMatrixView(places.rows(0, length).matrix())
                                                 : ConstMatrixView{},
                   .y = rows_of(y)});
  const auto backward = [num_rows](const Node& node, const Gradients& grad_outputs) {
    const Tensor& grad_y = grad_outputs[0];
    Gradients grads = node.gradient_buffers();
    grad_y.backend().embedding_backward(
        grad_y.stream(), {node.saved(0).view(), rows_of(grad_y), used_rows(grads[0], num_rows),
                          used_rows(grads[1], grad_y.size(1))});
    return grads;
  };
  return record("Embedding", {weight, positions}, std::move(y), {tokens}, backward);
}

}  // namespace lockstep

// Causal self-attention, in blocks and by its formula.
#include <cmath>

#include "engine/autograd/node.h"
#include "engine/autograd/ops/sequences.h"
#include "engine/core/error.h"
#include "engine/core/half.h"
#include "engine/trace/span.h"
#include "kernels/sequence_calls.h"

namespace lockstep {
namespace {

using kernels::AttentionShape;

AttentionShape attention_shape(const Tensor& qkv, std::size_t heads) {
  require(qkv.num_dims() == 3 && qkv.size(2) % 3 == 0, ErrorCode::Shape, "attention",
          "expected queries, keys and values [batch, length, 3 * channels], found {}",
          to_string(qkv.shape()));
  const std::size_t channels = qkv.size(2) / 3;
  require(heads > 0 && channels % heads == 0, ErrorCode::Shape, "attention",
          "{} heads do not divide {} channels", heads, channels);
  require(channels / heads <= kernels::kMaxHeadSize, ErrorCode::Shape, "attention",
          "a head may have {} channels at most; {} heads of {} channels have {}",
          kernels::kMaxHeadSize, heads, channels, channels / heads);
  return {qkv.size(0), qkv.size(1), heads, channels / heads};
}

Tensor empty_result(const AttentionShape& shape, const Tensor& qkv) {
  return Tensor::empty({shape.batch, shape.length, shape.channels()}, qkv.dtype(), qkv.device());
}

}  // namespace

Variable attention(const Variable& qkv, std::size_t heads) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "Attention");
  const Tensor& input = qkv.value();
  const AttentionShape shape = attention_shape(input, heads);
  Tensor y = empty_result(shape, input);
  Tensor log_sums =
      Tensor::empty({shape.num_rows()}, arithmetic_dtype(input.dtype()), input.device());
  y.backend().attention_forward(y.stream(), {shape, input.view(), y.view(), log_sums.view()});
  const auto backward = [shape](const Node& node, const Gradients& grad_outputs) {
    const Tensor& kept_sums = node.saved(2);
    const Tensor grad_qkv = node.gradient_buffer(0);
    const Tensor scratch = Tensor::empty_like(kept_sums);
    grad_qkv.backend().attention_backward(grad_qkv.stream(), {.shape = shape,
                                                              .qkv = node.saved(0).view(),
                                                              .y = node.saved(1).view(),
                                                              .log_sums = kept_sums.view(),
                                                              .grad_y = grad_outputs[0].view(),
                                                              .grad_qkv = grad_qkv.view(),
                                                              .scratch = scratch.view()});
    return Gradients{grad_qkv};
  };
  return record("Attention", {qkv}, y, {input, y, log_sums}, backward);
}

namespace {

enum class Part { queries, keys, values };

// All heads of one sequence, as a batch of matrices [length, head_size]: in qkv or its gradient.
MatrixView heads_in(const Tensor& qkv, const AttentionShape& s, std::size_t sequence, Part part) {
  const std::size_t offset =
      sequence * s.length * 3 * s.channels() + static_cast<std::size_t>(part) * s.channels();
  return {static_cast<std::byte*>(qkv.raw()) + offset * size_of(qkv.dtype()),
          qkv.dtype(),
          s.length,
          s.head_size,
          3 * s.channels(),
          s.heads,
          s.head_size};
}
// The same in y or its gradient.
MatrixView heads_in(const Tensor& y, const AttentionShape& s, std::size_t sequence) {
  const std::size_t offset = sequence * s.length * s.channels();
  return {static_cast<std::byte*>(y.raw()) + offset * size_of(y.dtype()),
          y.dtype(),
          s.length,
          s.head_size,
          s.channels(),
          s.heads,
          s.head_size};
}
// Matrices [length, length]: of one sequence's heads, or of all.
MatrixView scores_in(const Tensor& scores, const AttentionShape& s, std::size_t sequence,
                     std::size_t num_sequences) {
  const std::size_t size = s.length * s.length;
  return {
      static_cast<std::byte*>(scores.raw()) + sequence * s.heads * size * size_of(scores.dtype()),
      scores.dtype(),
      s.length,
      s.length,
      s.length,
      num_sequences * s.heads,
      size};
}

double scale_of(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_size));
}

void product(const Tensor& on, const MatrixView& a, Transpose transpose_a, const MatrixView& b,
             Transpose transpose_b, const MatrixView& c) {
  on.backend().matmul(on.stream(), {a, transpose_a, b, transpose_b, c});
}

}  // namespace

// For each head, with S = Q * K^T, P = softmax(scale * S) row by row, y = P * V:
//   grad_V = P^T * grad_y;  grad_P = grad_y * V^T
//   grad_S = scale * P * (grad_P - row sums of P * grad_P)
//   grad_Q = grad_S * K;    grad_K = grad_S^T * Q
Variable plain_attention(const Variable& qkv, std::size_t heads) {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::op, "PlainAttention");
  const Tensor& input = qkv.value();
  const AttentionShape s = attention_shape(input, heads);
  Tensor y = empty_result(s, input);
  Tensor p = Tensor::empty({s.num_rows(), s.length}, input.dtype(), input.device());
  for (std::size_t b = 0; b < s.batch; ++b) {
    product(y, heads_in(input, s, b, Part::queries), Transpose::no,
            heads_in(input, s, b, Part::keys), Transpose::yes, scores_in(p, s, b, 1));
  }
  const MatrixView all = scores_in(p, s, 0, s.batch);
  y.backend().causal_softmax_forward(y.stream(), {all, scale_of(s), all});
  for (std::size_t b = 0; b < s.batch; ++b) {
    product(y, scores_in(p, s, b, 1), Transpose::no, heads_in(input, s, b, Part::values),
            Transpose::no, heads_in(y, s, b));
  }
  const auto backward = [s](const Node& node, const Gradients& grad_outputs) {
    const Tensor& kept = node.saved(0);
    const Tensor& probabilities = node.saved(1);
    const Tensor& grad_y = grad_outputs[0];
    const Tensor grad = node.gradient_buffer(0);
    const Tensor grad_p = Tensor::empty_like(probabilities);
    for (std::size_t b = 0; b < s.batch; ++b) {
      product(grad, scores_in(probabilities, s, b, 1), Transpose::yes, heads_in(grad_y, s, b),
              Transpose::no, heads_in(grad, s, b, Part::values));
      product(grad, heads_in(grad_y, s, b), Transpose::no, heads_in(kept, s, b, Part::values),
              Transpose::yes, scores_in(grad_p, s, b, 1));
    }
    const MatrixView grads_of_all = scores_in(grad_p, s, 0, s.batch);
    grad.backend().causal_softmax_backward(grad.stream(),
                                           {.p = scores_in(probabilities, s, 0, s.batch),
                                            .grad_p = grads_of_all,
                                            .scale = scale_of(s),
                                            .grad_scores = grads_of_all});
    for (std::size_t b = 0; b < s.batch; ++b) {
      const MatrixView grad_s = scores_in(grad_p, s, b, 1);
      product(grad, grad_s, Transpose::no, heads_in(kept, s, b, Part::keys), Transpose::no,
              heads_in(grad, s, b, Part::queries));
      product(grad, grad_s, Transpose::yes, heads_in(kept, s, b, Part::queries), Transpose::no,
              heads_in(grad, s, b, Part::keys));
    }
    return Gradients{grad};
  };
  return record("PlainAttention", {qkv}, std::move(y), {input, p}, backward);
}

}  // namespace lockstep

// The calls of the kernels for sequences of tokens: embeddings and attention.
#pragma once

#include "kernels/calls.h"

namespace lockstep::kernels {

// y[i] = weight[tokens[i]] + positions[i % length]. Throws Error{Shape} that names the place of a
// token outside the vocabulary.
struct EmbeddingForward {
  ConstTensorView tokens;     // int64 [rows]
  ConstMatrixView weight;     // [vocabulary, channels]
  ConstMatrixView positions;  // [length, channels], or no data
  MatrixView y;
  auto describe(auto f) const { return f("embedding", tokens, weight, positions, y); }
};

// Each row of grad_weight (grad_positions) = the sum of the rows of grad_y whose y used it, added
// in their order; zeros if there are none.
struct EmbeddingBackward {
  ConstTensorView tokens;
  ConstMatrixView grad_y;
  MatrixView grad_weight, grad_positions;
  auto describe(auto f) const {
    return f("embedding backward", tokens, grad_y, grad_weight, grad_positions);
  }
};

// Causal self-attention: in each of several heads, position t of a sequence only sees positions 0
// ... t.
struct AttentionShape {
  std::size_t batch = 0;   // sequences
  std::size_t length = 0;  // positions of each
  std::size_t heads = 0;
  std::size_t head_size = 0;  // channels of a head, at most kMaxHeadSize

  std::size_t channels() const { return heads * head_size; }
  std::size_t num_rows() const { return batch * heads * length; }  // of all heads' scores
};
inline constexpr std::size_t kMaxHeadSize = 128;

// With P = softmax of the visible scores queries * keys^T / sqrt(head_size): y = P * values. Only
// blocks of the scores exist at a time.
struct AttentionForward {
  AttentionShape shape;
  // [batch, length, 3 * channels]: all heads' queries, then keys, then values; each head has
  // [length, head_size] of each.
  ConstTensorView qkv;
  TensorView y;         // [batch, length, channels]
  TensorView log_sums;  // [batch, heads, length]: log of the sum of exp(scores), for backward
  auto describe(auto f) const { return f("attention", qkv, y, log_sums); }
};

struct AttentionBackward {
  AttentionShape shape;
  ConstTensorView qkv, y, log_sums, grad_y;
  TensorView grad_qkv;
  TensorView scratch;  // as large as log_sums
  auto describe(auto f) const { return f("attention backward", qkv, y, grad_y, grad_qkv, scratch); }
};

// Row i of each matrix: p[j] = softmax over j <= i of scale * scores[j]; 0 for j > i. Both are
// contiguous.
struct CausalSoftmaxForward {
  ConstMatrixView scores;
  double scale = 1;
  MatrixView p;  // may alias scores
  auto describe(auto f) const { return f("causal softmax", scores, p); }
};

// grad_scores = scale * p * (grad_p - (row sum of p * grad_p))
struct CausalSoftmaxBackward {
  ConstMatrixView p, grad_p;
  double scale = 1;
  MatrixView grad_scores;  // may alias grad_p
  auto describe(auto f) const { return f("causal softmax backward", p, grad_p, grad_scores); }
};

}  // namespace lockstep::kernels

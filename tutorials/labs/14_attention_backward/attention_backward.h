// Lab 14: the backward of attention. README.md says what is to be done.
#pragma once

#include <vector>

namespace lab {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;

// A head's queries, keys and values, or their gradients: each [positions, size].
struct Head {
  Matrix q, k, v;
};

// Causal attention: y[t] = sum over s = 0 ... t of weights[s] * v[s], where the weights of position
// t are the softmax of its scores q[t] . k[s] / sqrt(size). Shape: [positions, size].
Matrix attend(const Head& head);

// The gradients of a row's scores, given the weights that softmax made of them and the gradients of
// these weights.
Row softmax_backward(const Row& weights, const Row& grad_weights);

// The gradients of queries, keys and values, given that of y = attend(head).
Head attention_backward(const Head& head, const Matrix& grad_y);

}  // namespace lab

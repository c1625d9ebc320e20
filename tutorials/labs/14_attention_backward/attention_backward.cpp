#include "attention_backward.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "lab.h"

namespace lab {
namespace {

double dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// sum += factor * row
void add(Row& sum, double factor, const Row& row) {
  for (std::size_t i = 0; i < row.size(); ++i) sum[i] += factor * row[i];
}

double scale_of(const Head& head) {
  return 1 / std::sqrt(static_cast<double>(head.q[0].size()));
}

// The weights of position t, for positions 0 ... t.
Row weights_of(const Head& head, std::size_t t) {
  Row row;
  for (std::size_t s = 0; s <= t; ++s) row.push_back(scale_of(head) * dot(head.q[t], head.k[s]));
  const double largest = *std::max_element(row.begin(), row.end());
  for (double& x : row) x = std::exp(x - largest);
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& x : row) x /= sum;
  return row;
}

}  // namespace

Matrix attend(const Head& head) {
  Matrix y(head.q.size(), Row(head.q[0].size()));
  for (std::size_t t = 0; t < y.size(); ++t) {
    const Row weights = weights_of(head, t);
    for (std::size_t s = 0; s <= t; ++s) add(y[t], weights[s], head.v[s]);
  }
  return y;
}

Row softmax_backward(const Row& weights, const Row& grad_weights) {
  // SOLUTION begin: softmax_backward: each score's gradient = its weight * (its weight's gradient -
  // the mean of these gradients by the weights)
  const double mean = dot(weights, grad_weights);
  Row grad_scores;
  for (std::size_t s = 0; s < weights.size(); ++s) {
    grad_scores.push_back(weights[s] * (grad_weights[s] - mean));
  }
  return grad_scores;
  // SOLUTION end
}

Head attention_backward(const Head& head, const Matrix& grad_y) {
  const Matrix zeros(head.q.size(), Row(head.q[0].size()));
  Head grad{zeros, zeros, zeros};
  for (std::size_t t = 0; t < head.q.size(); ++t) {
    const Row weights = weights_of(head, t);
    // SOLUTION begin: attention_backward: what position t adds to the gradients of v, q and k, by
    // softmax_backward() and add()
    Row grad_weights;
    for (std::size_t s = 0; s <= t; ++s) {
      add(grad.v[s], weights[s], grad_y[t]);
      grad_weights.push_back(dot(grad_y[t], head.v[s]));
    }
    const Row grad_scores = softmax_backward(weights, grad_weights);
    for (std::size_t s = 0; s <= t; ++s) {
      add(grad.q[t], scale_of(head) * grad_scores[s], head.k[s]);
      add(grad.k[s], scale_of(head) * grad_scores[s], head.q[t]);
    }
    // SOLUTION end
  }
  return grad;
}

}  // namespace lab

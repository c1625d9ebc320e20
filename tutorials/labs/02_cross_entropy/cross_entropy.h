// Lab 02: the loss of a classifier, and its gradient. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lab {

// A batch: logits [rows, num_classes], row-major, and the right class of each row.
struct Batch {
  std::span<const double> logits;
  std::span<const std::size_t> labels;
  std::size_t num_classes = 0;

  std::span<const double> row(std::size_t index) const {
    return logits.subspan(index * num_classes, num_classes);
  }
};

// exp(x_j) / sum of exp(x_k) over all k: what the logits of one row say about each class. Finite
// also for logits of +-1000.
std::vector<double> softmax(std::span<const double> row);

// The mean over rows of -log(softmax(row)[label]). Finite also for logits of +-1000.
double cross_entropy(const Batch& batch);

// dL/dlogits [rows, num_classes] for L = grad_loss * cross_entropy(batch).
std::vector<double> cross_entropy_backward(const Batch& batch, double grad_loss);

}  // namespace lab

// Losses as objects, as PyTorch writes them: CrossEntropyLoss criterion; criterion(logits, labels).
#pragma once

#include "engine/autograd/ops/ops.h"
#include "engine/tensor/tensor.h"

namespace lockstep::nn {

// -log softmax(logits)[label], averaged or summed over rows; see cross_entropy() in ops.h.
class CrossEntropyLoss {
 public:
  explicit CrossEntropyLoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Variable operator()(const Variable& logits, const Tensor& labels) const {
    return cross_entropy(logits, labels, reduction_);
  }

 private:
  Reduction reduction_;
};

// (x - target)^2, averaged or summed over elements; see mse_loss() in ops.h.
class MSELoss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Variable operator()(const Variable& x, const Tensor& target) const {
    return mse_loss(x, target, reduction_);
  }

 private:
  Reduction reduction_;
};

// How well a classifier does: (logits.argmax(1) == labels).sum() in PyTorch.

// The number of rows whose largest logit is that of their label; waits for the device.
// Shapes:  logits [batch, classes], labels int64 [batch].
// Throws:  Error{Shape} when their rows differ, Error{Device} unless both are on one device.
std::size_t count_correct(const Tensor& logits, const Tensor& labels);

}  // namespace lockstep::nn

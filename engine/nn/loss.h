// Losses as objects, as in PyTorch: CrossEntropyLoss criterion; criterion(logits, labels).
#pragma once

#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/module.h"
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

// Puts a model into evaluation mode; its destructor restores each module's own mode.
class EvaluationScope {
 public:
  explicit EvaluationScope(Module& model);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  Module& model_;
  std::vector<bool> was_training_;
};

// How good a classifier is: (logits.argmax(1) == labels).sum() in PyTorch.

// The number of rows whose largest logit is that of their label; waits for the device.
// Shapes:  logits [batch, classes], labels int64 [batch].
// Throws:  Error{Shape} when their rows differ, Error{Device} unless both are on one device.
std::size_t count_correct(const Tensor& logits, const Tensor& labels);

// The fraction of rows that a model classifies correctly, in evaluation mode and without gradients.
// The rows are copied to the model's device; afterwards the model has its old mode.
// Shapes:  x [rows, ...], labels int64 [rows].
// Throws:  as count_correct and the model do.
double accuracy(Module& model, const Tensor& x, const Tensor& labels);
// The same for rows with members x and labels: data::LabelledTensors, data::Batch.
template <typename Rows>
double accuracy(Module& model, const Rows& rows) {
  return accuracy(model, rows.x, rows.labels);
}

}  // namespace lockstep::nn

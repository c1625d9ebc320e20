// How well a classifier does: (logits.argmax(1) == labels).sum() in PyTorch.
#pragma once

#include "engine/tensor/tensor.h"

namespace lockstep::nn {

// The number of rows whose largest logit is that of their label; waits for the device.
// Shapes:  logits [batch, classes], labels int64 [batch].
// Throws:  Error{Shape} when their rows differ, Error{Device} unless both are on one device.
std::size_t count_correct(const Tensor& logits, const Tensor& labels);

}  // namespace lockstep::nn

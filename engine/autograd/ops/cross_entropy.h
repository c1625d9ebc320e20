// What the operations that end in a cross-entropy share. Included by them only.
#pragma once

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/saved_tensor.h"

namespace lockstep {

// Throws what cross_entropy() of ops.h says of labels and grad, for logits of this shape. loss: a
// scalar on their device, of their dtype.
void require_cross_entropy(const Shape& logits, const Tensor& loss, const Tensor& labels,
                           const Tensor& grad);

// Whether the gradient that backward() is given is the one with which forward has computed already.
bool is_unchanged(const SavedTensor& foreseen, const Tensor& given);

}  // namespace lockstep

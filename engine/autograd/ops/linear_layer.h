// One layer of a chain of Linears, for the operations that run such chains. Included by them only.
#pragma once

#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"

namespace lockstep {

// An activation whose gradient is still to be taken, and what that needs besides its value.
struct PendingActivation {
  Activation kind = Activation::none;
  Tensor preactivation;  // [batch, features rounded up]; only for GELU
  Tensor mask;           // only where the backend asks for one
};

// The features of a saved preactivation, without those that its rows were rounded up by.
MatrixView preactivation_view(const Tensor& padded, std::size_t features);

// Lets a call take the gradient of the activation that the layer before left. Call: LinearBackward
// or LinearCrossEntropy, with its x.
template <typename Call>
void take_gradient_of(const PendingActivation& left, Call& call) {
  call.input_activation = left.kind;
  if (left.preactivation.defined()) {
    call.input_preactivation = preactivation_view(left.preactivation, call.x.cols);
  }
}

// Who takes the gradient of a layer's activation: the layer itself, the backward product of the
// layer after it, or that layer together with the loss.
enum class ActivationGradient { own, next_product, next_loss };

// What a layer gives the one after it.
struct ChainLink {
  Variable y;
  PendingActivation left;  // unless the layer takes its gradient itself
};

// Throws Error{Shape}, Error{Device} or Error{DType} unless a layer fits its input.
void require_layer_fits(const Tensor& x, const Tensor& weight, const Tensor& bias);

// Layer by layer; all but the last leave their activations to the product after them.
ChainLink run_layers(ChainLink input, std::span<const LinearLayer> layers,
                     ActivationGradient of_last);

}  // namespace lockstep

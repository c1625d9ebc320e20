// The calls of the normalisation kernels.
#pragma once

#include "kernels/calls.h"

namespace lockstep::kernels {

// Normalises each row over its features.
struct LayerNormForward {
  ConstMatrixView x;       // [rows, features]
  ConstTensorView weight;  // [features]
  ConstTensorView bias;    // [features]
  MatrixView y;            // [rows, features]
  TensorView mean;         // [rows], written
  TensorView inverse_std;  // [rows]: 1/sqrt(biased variance + epsilon), written
  double epsilon = 1e-5;
  auto describe(auto f) const { return f("layer norm", x, weight, bias, y, mean, inverse_std); }
};

struct LayerNormBackward {
  ConstMatrixView x;
  ConstTensorView weight;
  ConstTensorView mean, inverse_std;  // as the forward pass wrote them
  ConstMatrixView grad_y;
  MatrixView grad_x;
  TensorView grad_weight, grad_bias;
  auto describe(auto f) const {
    return f("layer norm backward", x, weight, mean, inverse_std, grad_y, grad_x, grad_weight,
             grad_bias);
  }
};

struct BatchNormForward {
  ConstMatrixView x;        // [batch, features]
  ConstTensorView weight;   // [features], or no data: ones
  ConstTensorView bias;     // [features], or no data: zeros
  MatrixView y;             // [batch, features]
  TensorView mean;          // [features]: of this batch (training) or given (evaluation)
  TensorView inverse_std;   // [features]: 1/sqrt(biased variance + epsilon), written
  TensorView running_mean;  // [features], or no data; updated with momentum when training
  TensorView running_var;   // [features], or no data; updated with the unbiased variance
  double momentum = 0.1;
  double epsilon = 1e-5;
  Statistics statistics = Statistics::batch;
  ConstTensorView moments = {};  // shared: all replicas' moments, one after another
  auto describe(auto f) const {
    return f("batch norm", x, weight, bias, y, mean, inverse_std, running_mean, running_var);
  }
};

struct BatchNormBackward {
  ConstMatrixView x;                  // [batch, features]
  ConstTensorView weight;             // [features], or no data: ones
  ConstTensorView mean, inverse_std;  // as the forward pass used them
  ConstMatrixView grad_y;
  MatrixView grad_x;
  TensorView grad_weight, grad_bias;
  Statistics statistics = Statistics::batch;
  TensorView sums = {};  // shared: BatchNormSums' over all replicas; then only grad_x is written
  auto describe(auto f) const {
    return f("batch norm backward", x, weight, mean, inverse_std, grad_y, grad_x, grad_weight,
             grad_bias);
  }
};

// For replicas that share their statistics: each feature's mean, each feature's sum of squared
// deviations from it, and the number of rows.
struct BatchMoments {
  ConstMatrixView x;
  TensorView moments;  // float64 [2 * features + 1]
  auto describe(auto f) const { return f("batch moments", x, moments); }
};

// The first half of a shared backward pass. sums, float64 [2 * features + 1], receives each
// feature's sum of grad_y, then of grad_y * x^ with x^ = (x - mean) * inverse_std, and the number
// of rows; grad_weight and grad_bias are written too.
struct BatchNormSums : BatchNormBackward {
  auto describe(auto f) const {
    return f("batch norm sums", x, mean, inverse_std, grad_y, grad_weight, grad_bias, sums);
  }
};

}  // namespace lockstep::kernels

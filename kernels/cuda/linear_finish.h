// What a linear layer does to a product when cuBLASLt's epilogue cannot: one more pass over it.
#pragma once

#include "kernels/backend.h"

namespace lockstep::kernels::cuda {

// y = activation(y + bias), in place; y + bias is kept in preactivation where it has data.
// Shapes:  y, preactivation [rows, cols]; bias [cols] or no data.
void finish_forward(Stream& stream, MatrixView y, ConstTensorView bias, Activation activation,
                    MatrixView preactivation);

// grad_x = grad_y * activation'; `saved` is the value after the activation, for GELU the one
// before. Shapes:  all [rows, cols]. grad_x may be grad_y.
void finish_backward(Stream& stream, Activation activation, ConstMatrixView saved,
                     ConstMatrixView grad_y, MatrixView grad_x);

// Zeroes every matrix of the batch.
void zero_matrix(Stream& stream, MatrixView y);

}  // namespace lockstep::kernels::cuda

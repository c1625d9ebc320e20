// The calls of the kernels for images [images, height, width, channels]: convolution and pooling.
#pragma once

#include <string>

#include "kernels/calls.h"
#include "kernels/windows.h"

namespace lockstep::kernels {

struct Patches {  // the elements of each window, row by row; 0 outside the image
  Windows windows;
  ConstTensorView x;
  MatrixView patches;
  auto describe(auto f) const { return f("patches", x, patches); }
};

// The transpose: each element of x is the sum of its copies in the patches, in the order of rows.
struct FoldPatches {
  Windows windows;
  ConstMatrixView patches;
  TensorView x;
  auto describe(auto f) const { return f("patches backward", patches, x); }
};

// A convolution: LinearForward over the patches of images.
struct ConvForward {
  Windows windows;
  ConstTensorView x;       // [images, height, width, channels]
  ConstMatrixView weight;  // [out, windows.cols()]
  ConstTensorView bias;    // [out], or no data
  Activation activation = Activation::none;
  MatrixView y;              // [windows.rows(), out]
  MatrixView preactivation;  // as LinearForward's
  TensorView scratch;        // conv_scratch(windows) elements
  auto describe(auto f) const { return f("conv", x, weight, bias, y, preactivation); }
};

struct ConvBackward {  // LinearBackward over the patches
  Windows windows;
  ConstTensorView x;
  ConstMatrixView weight;
  ConstMatrixView grad_z;  // [windows.rows(), out]
  TensorView grad_x;
  MatrixView grad_weight;
  TensorView grad_bias;
  TensorView scratch;
  auto describe(auto f) const {
    return f("conv backward", x, weight, grad_z, grad_x, grad_weight, grad_bias);
  }
};

struct PoolForward {
  Windows windows;
  Pooling pooling = Pooling::maximum;
  ConstTensorView x;
  TensorView y;        // [images, out_height, out_width, channels]
  TensorView winners;  // maximum only: int32 [y], places of the first largest pixels, y * width + x
  auto describe(auto f) const { return f("pool", x, y, winners); }
};

struct PoolBackward {
  Windows windows;
  Pooling pooling = Pooling::maximum;
  ConstTensorView winners, grad_y;
  TensorView grad_x;
  auto describe(auto f) const { return f("pool backward", winners, grad_y, grad_x); }
};

// Each matrix of x is transposed; the results are one after another in y.
struct TransposeMatrices {
  ConstMatrixView x;
  TensorView y;
  auto describe(auto f) const { return f("transpose", x, y); }
};

// The way of the CUDA backend's convolutions, for people: "cuDNN 9.28.1", or "products of patches,
// without cuDNN: " and why; empty in a build without CUDA.
std::string cuda_convolutions();

}  // namespace lockstep::kernels

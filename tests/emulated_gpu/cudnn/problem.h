// A convolution as a caller of cuDNN describes it, and the ways to compute it.
//
// Images x [n, h, w, c] and y [n, out_h, out_w, k] lie channels last, and so do the filters
// [k, kernel_h, kernel_w, c].
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tests/emulated_gpu/cudnn/control.h"

// Behind the library's handles; the names are the library's.
struct cudnnTensorStruct {
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int n = 0, c = 0, h = 0, w = 0;  // n = 0: not set yet
};
struct cudnnFilterStruct : cudnnTensorStruct {};  // n: features
struct cudnnConvolutionStruct {
  int pad_h = 0, pad_w = 0, stride_h = 0, stride_w = 0;  // stride_h = 0: not set yet
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace emulated_gpu::cudnn {

struct Problem {
  cudnnTensorStruct x, y;
  cudnnFilterStruct filter;
  cudnnConvolutionStruct convolution;

  // Factors are rounded to TF32.
  bool rounds() const { return x.type == CUDNN_DATA_FLOAT && convolution.math != CUDNN_FMA_MATH; }
};

std::size_t num_elements(const cudnnTensorStruct& tensor);
std::size_t num_bytes(const cudnnTensorStruct& tensor);

// BAD_PARAM where the descriptions contradict each other; NOT_SUPPORTED where the documentation has
// no such combination, or this library does not need it.
cudnnStatus_t check_problem(const Problem& problem);

// One of the ways of a pass. They round differently, as cuDNN's do.
struct Algorithm {
  int number = 0;  // of the pass's enumeration
  cudnnDeterminism_t determinism = CUDNN_DETERMINISTIC;
  enum class Sums { straight, in_parts } sums = Sums::straight;
  bool needs_workspace = false;
};
// The pass's algorithms, the fastest first. The real library ends its lists with those that it has
// not, and so does this one: with number `missing`.
inline constexpr std::size_t kNumAlgorithms = 2;
const Algorithm* algorithms_of(Pass pass);
inline constexpr int kMissing = 4;

std::size_t workspace_bytes(const Problem& problem, const Algorithm& algorithm);

struct Operands {
  const void* first = nullptr;   // x, or the filter for the gradient of x
  const void* second = nullptr;  // the filter, or the gradient of y
  void* result = nullptr;
  float alpha = 1, beta = 0;
};

// The arithmetic of a pass. is_reversed: sums run backwards. REQUIRES: check_problem(problem).
void compute(Pass pass, const Problem& problem, const Algorithm& algorithm,
             const Operands& operands, bool is_reversed);

}  // namespace emulated_gpu::cudnn

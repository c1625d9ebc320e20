// A product in the words of cuBLASLt (product.h says how they differ from ours).
#pragma once

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/product.h"

namespace lockstep::kernels::cuda {

// The types of a product: its elements, which are alpha's and beta's type too, and what it is
// computed in (matmul_precision.h).
struct ProductTypes {
  cudaDataType_t element;
  cublasComputeType_t compute;
};
ProductTypes types_of(const Product& product);

struct ProductDescription {
  // Throws Error{Cuda} where the library knows no such epilogue.
  ProductDescription(const Product& product, cublasLtEpilogue_t epilogue);

  ProductTypes types;
  MatmulDescriptor matmul;
  MatrixLayout first;   // of the memory of b
  MatrixLayout second;  // of the memory of a
  MatrixLayout result;  // of c
};

}  // namespace lockstep::kernels::cuda

// The arithmetic of cublasLtMatmul.
#pragma once

#include "tests/emulated_gpu/cublas_lt/problem.h"

namespace emulated_gpu::cublas_lt {

struct Operands {
  const void* alpha = nullptr;  // float, or double for float64 products
  const void* a = nullptr;
  const void* b = nullptr;
  const void* beta = nullptr;
  const void* c = nullptr;  // not read where beta is 0
  void* d = nullptr;
};

// REQUIRES: check_problem(problem).
void compute(const Problem& problem, const Algorithm& algorithm, const Operands& operands);

}  // namespace emulated_gpu::cublas_lt

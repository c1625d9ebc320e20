// Products of bfloat16 factors, as a GPU's: both factors are copied, each element rounded, and sums
// stay in float32.
#include <utility>
#include <vector>

#include "engine/core/half.h"
#include "kernels/cpu/gemm.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels {
namespace {

// The elements of memory from a nested factor's first to its last one.
std::size_t extent_of(const NestedFactor& factor) {
  std::size_t last = 0;
  for (const NestedStrides& places : {factor.rows, factor.cols}) {
    for (std::size_t k = 0; k < 3; ++k) {
      if (places.counts[k] == 0) return 0;
      last += (places.counts[k] - 1) * places.distances[k];
    }
  }
  return last + 1;
}

// rows, cols: after the transposition. The copy lies in `memory`.
Factor<float> rounded(const Factor<float>& factor, std::size_t rows, std::size_t cols,
                      std::vector<float>& memory) {
  Factor<float> copy = factor;
  if (factor.transpose == Transpose::yes) std::swap(rows, cols);
  if (factor.nested) {
    rows = 1;
    cols = extent_of(*factor.nested);
  } else {
    copy.leading_dimension = cols;
  }
  memory.reserve(rows * cols);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) {
      const float value = factor.data[i * factor.leading_dimension + j];
      memory.push_back(static_cast<float>(Bfloat16(value)));
    }
  }
  copy.data = memory.data();
  return copy;
}

}  // namespace

void with_rounded_factors(const Product<float>& product,
                          const std::function<void(const Product<float>&)>& multiply) {
  if (matmul_precision() != MatmulPrecision::bf16) return multiply(product);
  std::vector<float> a, b;
  Product<float> copy = product;
  copy.a = rounded(product.a, product.rows, product.depth, a);
  copy.b = rounded(product.b, product.depth, product.cols, b);
  multiply(copy);
}

}  // namespace lockstep::kernels

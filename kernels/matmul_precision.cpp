#include "kernels/matmul_precision.h"

#include <atomic>

#include "engine/core/error.h"

namespace lockstep::kernels {
namespace {

std::atomic<MatmulPrecision> current{MatmulPrecision::highest};

}  // namespace

void set_matmul_precision(MatmulPrecision precision) {
  current.store(precision, std::memory_order_relaxed);
}

MatmulPrecision matmul_precision() {
  return current.load(std::memory_order_relaxed);
}

std::string_view to_string(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::highest:
      return "highest";
    case MatmulPrecision::high:
      return "high";
    case MatmulPrecision::medium:
      return "medium";
  }
  return "unknown";
}

MatmulPrecision parse_matmul_precision(std::string_view word) {
  for (const MatmulPrecision precision :
       {MatmulPrecision::highest, MatmulPrecision::high, MatmulPrecision::medium}) {
    if (word == to_string(precision)) return precision;
  }
  fail(ErrorCode::Usage, "matmul precision",
       "'{}' is none; use highest (float32), high (TF32) or medium (bfloat16)", word);
}

}  // namespace lockstep::kernels

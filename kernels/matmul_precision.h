// How GPUs multiply float32 matrices: how exactly, and by which algorithm.
//
// Tensor cores are many times faster than float32 arithmetic, but round the factors first. Sums are
// float32 in every case, and matrices in memory stay float32. Process-wide, read by every product
// when it is enqueued: a captured graph keeps what it was captured with.
// float64 is always multiplied in full. The CPU ignores the setting: its products are always exact
// to float32's rounding.
// Source: torch.set_float32_matmul_precision, with its words.
#pragma once

#include <string_view>

namespace lockstep::kernels {

enum class MatmulPrecision {
  highest,  // float32: relative error of a product around 1e-7
  high,     // TF32, factors rounded to 10 bits after the point: around 5e-4
  medium,   // bfloat16, factors rounded to 7 bits: around 4e-3
};

void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();  // default: highest

// "highest", "high", "medium".
std::string_view to_string(MatmulPrecision precision);
// Throws Error{Usage} for any other word.
MatmulPrecision parse_matmul_precision(std::string_view word);

// A GPU library offers several algorithms for a product, and its own first guess is sometimes ten
// times slower than the best. So each product is timed when its sizes are first seen, and the
// winner is remembered (kernels/cuda/product.h). But algorithms add in different orders, so another
// run may round differently. A mode that promises the same bits in every run turns tuning off: the
// library's first guess depends on sizes, library and GPU model alone. The CPU has one algorithm.

// False with LOCKSTEP_TUNING=off in the environment, or inside an UntunedScope.
bool is_matmul_tuning_on();

// Turns tuning off, for all threads, while at least one such scope exists.
class UntunedScope {
 public:
  UntunedScope();
  ~UntunedScope();
  UntunedScope(const UntunedScope&) = delete;
  UntunedScope& operator=(const UntunedScope&) = delete;
};

}  // namespace lockstep::kernels

// How exactly GPUs multiply float32 matrices.
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

}  // namespace lockstep::kernels

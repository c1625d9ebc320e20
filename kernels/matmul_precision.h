// How float32 matrices are multiplied: the precision, and on GPUs the choice of the algorithm.
//
// Tensor cores are many times faster than float32 arithmetic, but round the factors first, those of
// attention's products too. Sums are always float32, and so are matrices in memory, but under bf16
// activations are stored as bfloat16. The setting is process-wide, and every product reads it when
// it is enqueued; a captured graph keeps the setting of its capture. float64 is always multiplied
// in full. The CPU's products are exact to float32's rounding, except for bf16, which it imitates.
// Source: torch.set_float32_matmul_precision, with its words; bf16 is torch.autocast's.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "engine/core/dtype.h"
#include "engine/core/error.h"

namespace lockstep::kernels {

enum class MatmulPrecision {
  highest,  // float32: relative error of a product around 1e-7
  high,     // TF32, factors rounded to 10 bits after the point: around 5e-4
  medium,   // bfloat16, factors rounded to 7 bits: around 4e-3
  bf16,     // the same, and activations lie in memory as bfloat16
};

namespace detail {
inline std::atomic<MatmulPrecision> matmul_precision{MatmulPrecision::highest};
inline std::atomic<int> num_untuned_scopes{0};
}  // namespace detail

inline void set_matmul_precision(MatmulPrecision precision) {
  detail::matmul_precision.store(precision, std::memory_order_relaxed);
}
inline MatmulPrecision matmul_precision() {
  return detail::matmul_precision.load(std::memory_order_relaxed);
}

// The dtype of activations, and of their gradients, under parameters of this dtype: float32 nets
// keep them as bfloat16 if the precision in force is bf16.
inline DType activation_dtype(DType parameters) {
  const bool is_mixed = parameters == DType::float32 && matmul_precision() == MatmulPrecision::bf16;
  return is_mixed ? DType::bfloat16 : parameters;
}

// "highest", "high", "medium", "bf16".
inline std::string_view to_string(MatmulPrecision precision) {
  constexpr std::array<std::string_view, 4> kWords{"highest", "high", "medium", "bf16"};
  return kWords.at(static_cast<std::size_t>(precision));
}
// PyTorch's three. Throws Error{Usage} for any other word.
inline MatmulPrecision parse_matmul_precision(std::string_view word) {
  for (const auto precision :
       {MatmulPrecision::highest, MatmulPrecision::high, MatmulPrecision::medium}) {
    if (word == to_string(precision)) return precision;
  }
  fail(ErrorCode::Usage, "matmul precision",
       "'{}' is not a precision; use highest (float32), high (TF32) or medium (bfloat16)", word);
}

// A GPU library offers several algorithms for a product, and its own first guess is sometimes ten
// times slower than the best. So each product is timed when its sizes are first seen, and the
// winner is remembered (kernels/cuda/product.h). But algorithms add in different orders, so another
// run may round differently. A mode that promises the same bits in every run turns tuning off: the
// library's first guess only depends on sizes, library and GPU model. The CPU has one algorithm.

// False with LOCKSTEP_TUNING=off in the environment, or inside an UntunedScope.
inline bool is_matmul_tuning_on() {
  static const bool by_environment = [] {
    const char* text = std::getenv("LOCKSTEP_TUNING");
    const std::string_view word = text ? text : "";
    require(word.empty() || word == "on" || word == "off", ErrorCode::Usage, "LOCKSTEP_TUNING",
            "is '{}'; use on or off", word);
    return word != "off";
  }();
  return by_environment && detail::num_untuned_scopes.load(std::memory_order_relaxed) == 0;
}

// Turns tuning off, for all threads, while at least one such scope exists.
class UntunedScope {
 public:
  UntunedScope() { detail::num_untuned_scopes.fetch_add(1, std::memory_order_relaxed); }
  ~UntunedScope() { detail::num_untuned_scopes.fetch_sub(1, std::memory_order_relaxed); }
  UntunedScope(const UntunedScope&) = delete;
  UntunedScope& operator=(const UntunedScope&) = delete;
};

}  // namespace lockstep::kernels

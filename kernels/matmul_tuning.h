// Whether GPU products choose their algorithm by the clock.
//
// A GPU library offers several algorithms for a product, and its own first guess is sometimes ten
// times slower than the best. So each product is timed when its sizes are first seen, and the
// winner is remembered (kernels/cuda/tuner.h). But algorithms add in different orders, so a run
// that is tuned again may round differently. A mode that promises the same bits in every run turns
// tuning off: then the library's first guess is taken, which depends on sizes, library and GPU
// model alone. The CPU has one algorithm and ignores all of this.
#pragma once

namespace lockstep::kernels {

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

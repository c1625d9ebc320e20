// Numbers smaller than the smallest normal one, where a state decays towards zero.
//
// A momentum that no gradient feeds any more, such as that of a unit which ReLU has shut, shrinks
// to a few times 1.4e-45 and stays there: 0.9 times that rounds back to itself. Many CPUs need over
// a hundred cycles for an operation on such a number, so that the updates of a net that has learned
// its data took fifteen times as long as before. They count as zero here.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::kernels {

// While one is alive, the calling thread's floating-point operations read subnormal numbers as zero
// and give zero in place of them; on CPUs other than x86-64 and AArch64 nothing changes.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(control()) { set_control(before_ | kFlush); }
  ~FlushSubnormals() { set_control(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t kFlush = 0x8040;  // MXCSR: flush to zero, denormals are zeros
  static std::uint64_t control() {
    return _mm_getcsr();
  }
  static void set_control(std::uint64_t value) {
    _mm_setcsr(static_cast<unsigned>(value));
  }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;  // FPCR: flush to zero
  static std::uint64_t control() {
    std::uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(std::uint64_t value) {
    asm volatile("msr fpcr, %0" : : "r"(value));
  }
#else
  static constexpr std::uint64_t kFlush = 0;
  static std::uint64_t control() {
    return 0;
  }
  static void set_control(std::uint64_t) {}
#endif

  std::uint64_t before_;
};

}  // namespace lockstep::kernels

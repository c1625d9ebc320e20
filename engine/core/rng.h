// Counter-based random numbers: Philox4x32-10.
//
// A value depends only on (seed, stream, index): not on the thread, the device, or how many values
// were drawn before. So any split of a batch over devices draws the same dropout mask, and the CUDA
// backend draws the CPU's values.
//
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Four random words for one 128-bit counter and one 64-bit key.
PhiloxBlock philox(const PhiloxBlock& counter, std::uint64_t key);

// 53 random bits as a double in [0, 1).
inline double uniform_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// A sequence of values from one (seed, stream). Copies continue from the same place.
class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  std::uint32_t next_word();
  // Uniform in [0, 1).
  double uniform();
  // Uniform in [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Mean 0, variance 1 (Box-Muller).
  double normal();
  // Uniform in 0 ... bound - 1, without bias. Throws Error{Usage} if bound is 0.
  std::uint64_t below(std::uint64_t bound);

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t block_index_ = 0;
  PhiloxBlock block_{};
  unsigned used_ = 4;
};

// The calling thread's generator, from which layers draw if they get none. It starts at seed 0 in
// every thread, so that ranks start alike whether they are threads or processes.
Rng& default_rng();
// Restarts the calling thread's generator. Source: torch.manual_seed.
void manual_seed(std::uint64_t seed);

// A permutation of 0 ... num_elements - 1 (Fisher-Yates), the same on every machine.
// Throws Error{Shape} for more elements than a vector can hold.
std::vector<std::size_t> random_permutation(std::size_t num_elements, std::uint64_t seed);

}  // namespace lockstep

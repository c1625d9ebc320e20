// How long the slowest of the cores takes for some arithmetic on what its first cache holds, in
// microseconds, while all of them do it at once. Where other guests of a host compute on the same
// core, which no counter of this machine shows, that takes up to twice as long.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "engine/runtime/core_binding.h"

namespace {

using namespace lockstep;

// The median of some times, so that an interrupt does not count.
double measure_core(int core) {
  constexpr int kTimes = 15;
  constexpr int kRepetitions = 2000;
  runtime::bind_to({core});
  std::vector<float> x(2048, 1), y(2048, 1);
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < kRepetitions; ++k) {
      for (std::size_t j = 0; j < x.size(); ++j) y[j] = 0.5F * y[j] + x[j];
    }
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::ranges::nth_element(times, times.begin() + kTimes / 2);
  return y[0] > 0 ? times[kTimes / 2] : 0;  // so that the work is not left out
}

}  // namespace

int main() {
  const std::vector<int> cores = runtime::allowed_cores();
  std::vector<double> times(cores.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] { times[i] = measure_core(cores[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  fmt::print("{:.1f}\n", *std::ranges::max_element(times));
}

// How long a layer takes by itself: forward, and backward with its gradients.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/autograd/variable.h"
#include "kernels/backend.h"
#include "tools/report/median.h"

namespace lockstep::tools {

struct LayerTime {
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// A Linear's input and parameters.
struct LayerTensors {
  Variable x, weight, bias;
};

// Of a Linear with its activation, on the device of its tensors: the medians of what each of
// several takes that are run one after the other. The backward pass makes the gradients of weight
// and bias, and of x where that requires one: all of them are cleared.
LayerTime measure_layer(std::span<LayerTensors> layers, kernels::Activation activation);

// The median time of run() in at least nine runs, or as many as a tenth of a second has time for,
// but three. before(), ahead of each, does not count.
template <typename Before, typename Run>
double median_seconds(const Before& before, const Run& run) {
  constexpr std::size_t kRuns = 9;
  constexpr std::size_t kFewestRuns = 3;
  constexpr double kLongest = 0.1;
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < kFewestRuns || (seconds.size() < kRuns && total < kLongest)) {
    before();
    const Clock::time_point start = Clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += seconds.back();
  }
  return median(std::move(seconds));
}

template <typename Run>
double median_seconds(const Run& run) {
  return median_seconds([] {}, run);
}

}  // namespace lockstep::tools

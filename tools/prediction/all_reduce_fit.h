// seconds = x / B + a * (bytes / MiB)^p, fitted to measured all-reduces.
#pragma once

#include <vector>

namespace lockstep::tools {

struct AllReduceSample {
  double bytes = 0;    // of the buffer
  double traffic = 0;  // x: what the algorithm moves
  double seconds = 0;
};

struct AllReduceFit {
  double bytes_per_second = 1;  // B
  double latency_seconds = 0;   // a, at 1 MiB
  double power = 0;             // p

  double seconds(double bytes, double traffic) const;
};

// Least squares of the relative error. p is found among 0, 0.01 ... 0.5; with fewer than three
// samples it is 0.2. REQUIRES: two samples of different sizes at least.
AllReduceFit fit_all_reduce(const std::vector<AllReduceSample>& samples);

}  // namespace lockstep::tools

#include "tools/prediction/all_reduce_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::tools {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kUsualPower = 0.2;  // assumed: docs/prediction.md

double squared_error(const AllReduceFit& fit, const std::vector<AllReduceSample>& samples) {
  double total = 0;
  for (const AllReduceSample& sample : samples) {
    const double error = fit.seconds(sample.bytes, sample.traffic) / sample.seconds - 1;
    total += error * error;
  }
  return total;
}

// 1/B and a by the normal equations of the relative errors, both at least 0.
AllReduceFit fit_with_power(const std::vector<AllReduceSample>& samples, double power) {
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const AllReduceSample& sample : samples) {
    const double u = sample.traffic / sample.seconds;
    const double v = std::pow(sample.bytes / kMiB, power) / sample.seconds;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u1 += u;
    v1 += v;
  }
  const double determinant = uu * vv - uv * uv;
  double inverse = (u1 * vv - v1 * uv) / determinant;
  double latency = (v1 * uu - u1 * uv) / determinant;
  if (!(latency >= 0)) {
    latency = 0;
    inverse = u1 / uu;
  }
  if (!(inverse > 0)) {  // all latency: as good as no limit
    latency = v1 / vv;
    inverse = 1e-15;
  }
  return {1 / inverse, latency, power};
}

}  // namespace

double AllReduceFit::seconds(double bytes, double traffic) const {
  return traffic / bytes_per_second + latency_seconds * std::pow(bytes / kMiB, power);
}

AllReduceFit fit_all_reduce(const std::vector<AllReduceSample>& samples) {
  if (samples.size() < 3) return fit_with_power(samples, kUsualPower);
  AllReduceFit best;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 50; ++i) {
    const AllReduceFit fit = fit_with_power(samples, 0.01 * i);
    const double error = squared_error(fit, samples);
    if (error < least) best = fit;
    least = std::min(least, error);
  }
  return best;
}

}  // namespace lockstep::tools

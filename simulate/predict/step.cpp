#include "simulate/predict/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "simulate/predict/step_work.h"

namespace lockstep::predict {

namespace {

using trace::Category;

constexpr std::size_t kSteps = 3;

// The part of [begin, end) that lies in [first, last).
double inside(const DoneWork& done, double first, double last) {
  return std::max(0.0, std::min(done.end, last) - std::max(done.begin, first));
}

// Both lists are sorted by time, and within a list nothing overlaps.
double overlap(const std::vector<DoneWork>& a, const std::vector<DoneWork>& b) {
  double total = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    total += inside(a[i], b[j].begin, b[j].end);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return total;
}

}  // namespace

std::size_t LayerWork::gradient_bytes() const {
  return std::accumulate(tensor_bytes.begin(), tensor_bytes.end(), std::size_t{0});
}

double Workload::compute_seconds() const {
  double seconds = optimizer_seconds + fixed_seconds;
  for (const LayerWork& layer : layers) seconds += layer.forward_seconds + layer.backward_seconds;
  return seconds;
}

std::size_t Workload::gradient_bytes() const {
  std::size_t total = 0;
  for (const LayerWork& layer : layers) total += layer.gradient_bytes();
  return total;
}

Workload with_rows(Workload workload, double factor) {
  for (LayerWork& layer : workload.layers) {
    layer.forward_seconds *= factor;
    layer.backward_seconds *= factor;
  }
  workload.input_bytes *= factor;
  return workload;
}

double expected_deviate(std::size_t k, std::size_t n) {
  if (n < 2) return 0;
  const double quantile = (static_cast<double>(k) - 0.375) / (static_cast<double>(n) + 0.25);
  double low = -10;
  double high = 10;
  for (int i = 0; i < 60; ++i) {  // the inverse of the normal distribution, by halving
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < quantile ? low : high) = middle;
  }
  return low;
}

double device_slowness(std::size_t i, std::size_t n) {
  // Multiples of a number without a common factor reach all places.
  std::size_t stride = n / 2 + 1;
  while (std::gcd(stride, n) != 1) ++stride;
  return 1 + kDeviceDeviation * expected_deviate(i * stride % n + 1, n);
}

PredictedStep predict_step(Network& network, const Workload& workload, const StepOptions& options) {
  const std::size_t available = network.topology().gpus.size();
  require(options.num_devices >= 1 && options.num_devices <= available, ErrorCode::Usage, "predict",
          "'{}' has {} devices, {} were asked for", network.topology().name, available,
          options.num_devices);
  const std::size_t per_host = network.topology().gpus_per_host();
  require(!is_of_one_process(options.strategy) || options.num_devices <= per_host, ErrorCode::Usage,
          "predict", "{} is one process: its devices are in one host, and '{}' has {} in each",
          to_string(options.strategy), network.topology().name, per_host);
  require(!workload.layers.empty(), ErrorCode::Usage, "predict", "the workload has no layers");
  if (options.strategy == Strategy::pipeline && options.num_devices > 1) {
    return predict_pipeline(network, workload, options);
  }
  StepWork steps(network, workload, options);
  for (std::size_t i = 0; i < kSteps; ++i) steps.add_step();
  const std::vector<DoneWork> times = run_lanes(steps.work(), kOverlapInterference);
  const double begin = times[steps.ends()[kSteps - 2]].end;
  const double end = times[steps.ends()[kSteps - 1]].end;

  PredictedStep result;
  trace::StepBreakdown& breakdown = result.breakdown;
  std::vector<DoneWork> computes;
  std::vector<DoneWork> comms;
  std::vector<DoneWork> hosts;  // beside the device
  double copies = 0;
  double late = 0;
  double first = end - begin;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Work& work = steps.work()[i];
    const double seconds = inside(times[i], begin, end);
    if (seconds <= 0) continue;
    const DoneWork clipped{std::max(times[i].begin, begin) - begin,
                           std::min(times[i].end, end) - begin};
    result.work.push_back(work);
    result.times.push_back(clipped);
    if (work.lane == WorkLane::compute) computes.push_back(clipped);
    if (work.lane == WorkLane::comm) comms.push_back(clipped);
    if (work.category == Category::copy) copies += seconds;
    // A late batch keeps the device from its first layer.
    if (work.category == Category::data) late = std::max(late, clipped.end);
    if (work.category == Category::forward) first = std::min(first, clipped.begin);
    if (work.category == Category::forward) breakdown.forward += seconds;
    if (work.category == Category::backward) breakdown.backward += seconds;
    if (work.category == Category::optimizer) breakdown.optimizer += seconds;
    if (work.category == Category::host) breakdown.host += seconds;
    if (work.category == Category::host && work.lane == WorkLane::host) hosts.push_back(clipped);
  }
  breakdown.host -= overlap(computes, hosts);  // hidden
  const double busy = breakdown.forward + breakdown.backward + breakdown.optimizer;
  const double idle = std::max(0.0, end - begin - busy - breakdown.host);
  breakdown.data = late == first ? std::min(late, idle) : 0;
  breakdown.copy = std::min(copies, idle - breakdown.data);
  breakdown.exposed_comm = idle - breakdown.data - breakdown.copy;
  for (const DoneWork& comm : comms) breakdown.comm += comm.end - comm.begin;
  breakdown.overlapped_comm = overlap(computes, comms);
  // The slowest device is later by its share of the time in which they compute.
  breakdown.wait = busy * kDeviceDeviation * expected_largest_deviate(options.num_devices);
  breakdown.step = end - begin + breakdown.wait;
  result.step_seconds = breakdown.step;
  result.busy_fraction = busy / breakdown.step;
  result.comm_bytes_per_device = steps.comm_bytes();
  return result;
}

namespace {

constexpr std::array<std::pair<std::string_view, Strategy>, 13> kNames = {
    {{"single", Strategy::single},
     {"dp", Strategy::data_parallel},
     {"cpu_reduce", Strategy::cpu_reduce},
     {"cpu_parameter_server", Strategy::cpu_parameter_server},
     {"device_allreduce", Strategy::device_all_reduce},
     {"device_parameter_server", Strategy::device_parameter_server},
     {"nccl_replicated", Strategy::nccl_replicated},
     {"ddp", Strategy::ddp},
     {"hierarchical", Strategy::hierarchical},
     {"zero1", Strategy::zero1},
     {"zero2", Strategy::zero2},
     {"zero3", Strategy::zero3},
     {"pipeline", Strategy::pipeline}}};

}  // namespace

std::string_view to_string(Strategy strategy) {
  for (const auto& [name, value] : kNames) {
    if (value == strategy) return name;
  }
  return "?";
}

bool is_of_one_process(Strategy strategy) {
  return strategy == Strategy::data_parallel || strategy == Strategy::device_all_reduce ||
         strategy == Strategy::device_parameter_server;
}

bool is_data_parallel(Strategy strategy) {
  return strategy != Strategy::pipeline;
}

Strategy parse_strategy(std::string_view name) {
  for (const auto& [known, value] : kNames) {
    if (known == name) return value;
  }
  if (name == "data_parallel") return Strategy::data_parallel;
  if (name == "device_all_reduce") return Strategy::device_all_reduce;
  std::string names;
  for (const auto& [known, value] : kNames) names.append(names.empty() ? "" : ", ").append(known);
  fail(ErrorCode::Usage, "strategy", "'{}' is not one of {}", shown(name), names);
}

}  // namespace lockstep::predict

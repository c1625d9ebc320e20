#include "tools/calibration/measurement.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/comm/communicator.h"
#include "engine/tensor/tensor.h"
#include "simulate/predict/step.h"
#include "tools/report/step_statistics.h"

namespace lockstep::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSmallestBuffer = 1 << 10;
constexpr std::size_t kLargestBuffer = 64 << 20;
constexpr std::size_t kBufferStep = 4;
constexpr int kRounds = 75;
constexpr int kRoundsOfManyBytes = 15;
constexpr std::size_t kManyBytes = 8 << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename Run>
double seconds_of(const Run& work) {
  const Clock::time_point start = Clock::now();
  work();
  return seconds_since(start);
}

// A backward pass of a layer, some tens of microseconds.
class Computation {
 public:
  explicit Computation(Device device)
      : x_(Tensor::full({kRows, kUnits}, 0.5, DType::float32, device), RequiresGrad::yes),
        weight_(Tensor::full({kUnits, kUnits}, 0.5, DType::float32, device), RequiresGrad::yes),
        bias_(Tensor::zeros({kUnits}, DType::float32, device), RequiresGrad::yes),
        y_(linear(x_, weight_, bias_)),
        grad_(Tensor::full(y_.shape(), 1.0, DType::float32, device)) {}

  void run() {
    for (Variable* variable : {&x_, &weight_, &bias_}) variable->clear_grad();
    y_.backward(grad_, Graph::retain);
  }

 private:
  static constexpr std::size_t kRows = 32;
  static constexpr std::size_t kUnits = 192;

  Variable x_, weight_, bias_, y_;
  Tensor grad_;
};

comm::CollectiveOptions as_ddp_does() {
  comm::CollectiveOptions options;
  options.op = comm::ReduceOp::average;
  options.launch = comm::Launch::async;
  return options;
}

}  // namespace

AllReduceTimes measure_all_reduces(comm::Communicator& communicator, Device device, bool is_fast) {
  AllReduceTimes times;
  Computation computation(device);
  const std::size_t largest = is_fast ? kLargestBuffer / 64 : kLargestBuffer;
  for (std::size_t bytes = kSmallestBuffer; bytes <= largest; bytes *= kBufferStep) {
    const Tensor gradient = Tensor::zeros({bytes / sizeof(float)}, DType::float32, device);
    const Tensor weight = Tensor::zeros({bytes / sizeof(float)}, DType::float32, device);
    const auto write_gradient = [&] { gradient.fill(0); };
    const auto update = [&] {
      weight.backend().axpy(weight.stream(), 0.1, gradient.view(), weight.view());
    };
    const auto compute = [&] {
      for (int i = 0; i < 4; ++i) computation.run();
    };
    std::vector<double> waits, extras;
    const int rounds = bytes > kManyBytes ? kRoundsOfManyBytes : kRounds;
    // Each round makes a step with an all-reduce, then one without. Cache lines that other ranks
    // have touched cost time in the first step's update, and when the second step writes its
    // gradient. The same work in the other step shows what it takes without that.
    for (int round = -2; round < rounds; ++round) {  // two to warm up
      communicator.barrier().wait();
      double extra = -seconds_of(write_gradient);
      compute();
      const double wait =
          seconds_of([&] { communicator.all_reduce(gradient, as_ddp_does()).wait(); });
      extra += seconds_of(update);
      extra += seconds_of(write_gradient);
      compute();
      extra -= seconds_of(update);
      // The slower rank waits less. The faster one's extra wait is deviation, which a prediction
      // adds.
      const double last_wait = comm::reduce_number(wait, comm::ReduceOp::min, communicator, device);
      if (round < 0) continue;
      waits.push_back(last_wait);
      extras.push_back(extra);
    }
    times.curve.sizes.push_back(static_cast<double>(bytes));
    times.curve.seconds.push_back(median(waits) + std::max(0.0, median(std::move(extras))));
    times.spreads.push_back(spread(std::move(waits)));
  }
  return times;
}

predict::Interference measure_overlap(comm::Communicator& communicator, Device device,
                                      const predict::Curve& all_reduces) {
  const Tensor gradient = Tensor::zeros({kManyBytes / sizeof(float)}, DType::float32, device);
  Computation computation(device);
  std::vector<double> compute;
  std::vector<double> comm;
  for (int round = -2; round < kRounds; ++round) {
    communicator.barrier().wait();
    Clock::time_point start = Clock::now();
    constexpr int kAlone = 20;
    for (int i = 0; i < kAlone; ++i) computation.run();
    const double alone = seconds_since(start) / kAlone;
    start = Clock::now();
    const comm::Work work = communicator.all_reduce(gradient, as_ddp_does());
    int count = 0;
    while (!work.is_done()) {
      computation.run();
      ++count;
    }
    const double both = seconds_since(start);
    work.wait();
    if (round < 0) continue;
    compute.push_back(std::min(1.0, count * alone / both));
    comm.push_back(std::min(1.0, all_reduces.at(static_cast<double>(kManyBytes)) / both));
  }
  // A smaller share would make predicted work last forever.
  constexpr double kLeast = 0.05;
  return {std::max(kLeast, median(std::move(compute))), std::max(kLeast, median(std::move(comm)))};
}

double measure_deviation(comm::Communicator& communicator, Device device) {
  constexpr int kRuns = 20;  // some milliseconds
  Computation computation(device);
  std::vector<double> later;
  for (int round = 0; round < kRounds; ++round) {
    communicator.barrier().wait();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRuns; ++i) computation.run();
    const double seconds = seconds_since(start);
    const auto reduced = [&](comm::ReduceOp op) {
      return comm::reduce_number(seconds, op, communicator, device);
    };
    later.push_back(reduced(comm::ReduceOp::max) / reduced(comm::ReduceOp::average) - 1);
  }
  const auto num_ranks = static_cast<std::size_t>(communicator.world_size());
  return std::clamp(median(std::move(later)) / predict::expected_largest_deviate(num_ranks), 0.0,
                    1.0);
}

}  // namespace lockstep::tools

#include "tools/collectives/measure_all_reduce.h"

#include <chrono>
#include <cmath>

#include "engine/runtime/logical_device.h"

namespace lockstep::tools {
namespace {

// Rank r contributes r + 1 + (i mod 7) in element i, so sums are exact in float.
float contribution(int rank, std::size_t i) {
  return static_cast<float>(rank + 1 + i % 7);
}

std::size_t count_wrong(const Tensor& buffer, int world_size) {
  std::size_t wrong = 0;
  const std::vector<float> values = buffer.to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < world_size; ++rank) expected += contribution(rank, i);
    wrong += values[i] != expected;
  }
  return wrong;
}

// Of a number that every rank has. On the ranks' devices, which every communicator reaches.
double reduce_number(double value, comm::ReduceOp op, comm::Communicator& communicator,
                     Device device) {
  const Tensor number = Tensor::from(std::vector<double>{value}, {1}, device);
  comm::CollectiveOptions options;
  options.op = op;
  communicator.all_reduce(number, options).wait();
  return number.item();
}

}  // namespace

AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(communicator.rank(), i);
  const Tensor buffer = Tensor::from(values, {count}, device);
  communicator.all_reduce(buffer).wait();
  std::size_t num_wrong = 0;
  if (flags.checks()) num_wrong = count_wrong(buffer, communicator.world_size());
  // Values double with every further sum; zeros stay zeros and are as fast as any number.
  buffer.fill(0);
  for (int i = 0; i < flags.warm_up; ++i) communicator.all_reduce(buffer).wait();
  buffer.stream().synchronize();
  communicator.barrier().wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < flags.iterations; ++i) communicator.all_reduce(buffer).wait();
  buffer.stream().synchronize();  // on CUDA the work has only been enqueued
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double slowest = reduce_number(seconds, comm::ReduceOp::max, communicator, device);
  const double wrong =
      reduce_number(static_cast<double>(num_wrong), comm::ReduceOp::sum, communicator, device);
  return {slowest / flags.iterations, static_cast<std::size_t>(std::llround(wrong))};
}

}  // namespace lockstep::tools

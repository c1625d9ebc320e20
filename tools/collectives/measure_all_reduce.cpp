#include "tools/collectives/measure_all_reduce.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::tools {
namespace {

// Rank r contributes 1 or 2 in element i, by the bits of a hash (the finalizer of splitmix64), so
// that a value in the wrong place shows, and sums of up to 128 ranks are exact in every type.
double contribution(int rank, std::size_t i) {
  std::uint64_t x = i * 64 + static_cast<std::uint64_t>(rank);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return 1 + static_cast<double>((x >> 63) & 1U);
}

double combine(comm::ReduceOp op, double a, double b) {
  switch (op) {
    case comm::ReduceOp::sum:
    case comm::ReduceOp::average:
      return a + b;
    case comm::ReduceOp::product:
      return a * b;
    case comm::ReduceOp::min:
      return std::min(a, b);
    case comm::ReduceOp::max:
      return std::max(a, b);
  }
  return a;
}

std::vector<double> expected_values(comm::ReduceOp op, int world_size, std::size_t count) {
  std::vector<double> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = contribution(0, i);
    for (int rank = 1; rank < world_size; ++rank) {
      expected[i] = combine(op, expected[i], contribution(rank, i));
    }
    if (op == comm::ReduceOp::average) expected[i] /= world_size;
  }
  return expected;
}

// Unit roundoff of the arithmetic: the largest relative error of one rounding.
double roundoff(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 0x1p-53;
    case DType::float32:
      return 0x1p-24;
    case DType::float16:
      return 0x1p-11;
    case DType::bfloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

std::size_t count_wrong(const Tensor& buffer, comm::ReduceOp op, int world_size) {
  const std::vector<double> found = buffer.to(DType::float64).to_vector<double>();
  // As large as the type holds it, and as it wraps around.
  const std::vector<double> expected =
      Tensor::from(expected_values(op, world_size, found.size()), {found.size()})
          .to(buffer.dtype())
          .to(DType::float64)
          .to_vector<double>();
  // Thirds are not exact, so an average may be rounded at every rank and once on its way here.
  const double relative =
      op == comm::ReduceOp::average ? (2 * world_size + 1) * roundoff(buffer.dtype()) : 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // infinities too
    wrong += !(std::abs(found[i] - expected[i]) <= relative * std::abs(expected[i]));
  }
  return wrong;
}

}  // namespace

AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count, Placement placement) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(communicator.rank(), i);
  const Tensor buffer = Tensor::from(values, {count}).to(flags.dtype()).to(device);
  comm::CollectiveOptions options;
  options.op = flags.reduce_op();
  const bool is_out_of_place = placement == Placement::out_of_place;
  const Tensor input =
      is_out_of_place ? Tensor::from(values, {count}).to(flags.dtype()).to(device) : Tensor();
  if (is_out_of_place) buffer.fill(0);
  const auto all_reduce = [&] {
    if (is_out_of_place) buffer.copy_from(input);
    communicator.all_reduce(buffer, options).wait();
  };
  all_reduce();
  std::size_t num_wrong = 0;
  if (flags.checks()) {
    num_wrong = count_wrong(buffer.to(Device{}), options.op, communicator.world_size());
  }
  // Values double with every further sum; zeros stay zeros and are as fast as any number.
  buffer.fill(0);
  if (is_out_of_place) input.fill(0);
  for (int i = 0; i < flags.warm_up; ++i) all_reduce();
  buffer.stream().synchronize();
  communicator.barrier().wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < flags.iterations; ++i) all_reduce();
  buffer.stream().synchronize();  // on CUDA the work has only been enqueued
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double slowest = comm::reduce_number(seconds, comm::ReduceOp::max, communicator, device);
  const double wrong = comm::reduce_number(static_cast<double>(num_wrong), comm::ReduceOp::sum,
                                           communicator, device);
  return {slowest / flags.iterations, static_cast<std::size_t>(std::llround(wrong))};
}

}  // namespace lockstep::tools

#include "tools/commands/timed_all_reduce.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::tools {
namespace {

// Rank r contributes 1 or 2 in element i, by the bits of a hash (the finalizer of splitmix64). So a
// value in the wrong place shows, and sums of up to 128 ranks are exact in every type.
double contribution(int rank, std::size_t i) {
  std::uint64_t x = i * 64 + static_cast<std::uint64_t>(rank);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return 1 + static_cast<double>((x >> 63) & 1U);
}

std::vector<double> expected_values(const std::string& op, int world_size, std::size_t count) {
  std::vector<double> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = contribution(0, i);
    for (int rank = 1; rank < world_size; ++rank) {
      expected[i] = kOps.at(op).combine(expected[i], contribution(rank, i));
    }
    if (op == "avg") expected[i] /= world_size;
  }
  return expected;
}

std::size_t count_wrong(const AllReduceKind& kind, const Tensor& buffer, int world_size) {
  const std::vector<double> found = buffer.to(DType::float64).to_vector<double>();
  // Converts to the type, which may overflow or wrap around as the sum does.
  const std::vector<double> expected =
      Tensor::from(expected_values(kind.op, world_size, found.size()), {found.size()})
          .to(buffer.dtype())
          .to(DType::float64)
          .to_vector<double>();
  // Thirds are not exact: an average may be rounded at every rank, and once more in this
  // conversion.
  const double relative =
      kind.op == "avg" ? (2 * world_size + 1) * kDatatypes.at(kind.datatype).roundoff : 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // also true for infinities
    wrong += !(std::abs(found[i] - expected[i]) <= relative * std::abs(expected[i]));
  }
  return wrong;
}

}  // namespace

AllReduceTime measure_all_reduce(const AllReduceKind& kind, comm::Communicator& communicator,
                                 Device device, std::size_t count) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(communicator.rank(), i);
  const Tensor buffer = Tensor::from(values, {count}).to(kind.element_type()).to(device);
  comm::CollectiveOptions options;
  options.op = kOps.at(kind.op).op;
  const auto all_reduce = [&] { communicator.all_reduce(buffer, options).wait(); };
  all_reduce();
  std::size_t num_wrong = 0;
  if (kind.checks) {
    num_wrong = count_wrong(kind, buffer.to(Device{}), communicator.world_size());
  }
  // A sum doubles the values in every iteration; zeros stay zeros, and are as fast as any number.
  buffer.fill(0);
  for (int i = 0; i < kind.warm_up; ++i) all_reduce();
  buffer.stream().synchronize();
  communicator.barrier().wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kind.iterations; ++i) all_reduce();
  buffer.stream().synchronize();  // on CUDA the work is only enqueued so far
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double slowest = comm::reduce_number(seconds, comm::ReduceOp::max, communicator, device);
  const double wrong = comm::reduce_number(static_cast<double>(num_wrong), comm::ReduceOp::sum,
                                           communicator, device);
  return {slowest / kind.iterations, static_cast<std::size_t>(std::llround(wrong))};
}

}  // namespace lockstep::tools

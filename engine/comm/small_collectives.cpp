#include "engine/comm/small_collectives.h"

namespace lockstep::comm {

std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine,
                                         Communicator& communicator) {
  const auto world_size = static_cast<std::size_t>(communicator.world_size());
  const Tensor input = Tensor::from(mine, {mine.size()}, Device{});
  const Tensor output = Tensor::empty({mine.size() * world_size}, DType::int64, Device{});
  communicator.all_gather(input, output).wait();
  return output.to_vector<std::int64_t>();
}

double reduce_number(double mine, ReduceOp op, Communicator& communicator, Device device) {
  const Tensor number = Tensor::from(std::vector<double>{mine}, {1}, device);
  CollectiveOptions options;
  options.op = op;
  communicator.all_reduce(number, options).wait();
  return number.item();
}

}  // namespace lockstep::comm

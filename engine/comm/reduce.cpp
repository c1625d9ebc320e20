#include "engine/comm/reduce.h"

#include <vector>

#include "engine/runtime/logical_device.h"

namespace lockstep::comm {

void reduce(runtime::Stream& stream, const kernels::OrderedReduce& call) {
  kernels::backend(stream.device().device().type).ordered_reduce(stream, call);
}

void receive_chunk(const plan::Receive& receive, int rank, const Reduction& reduction,
                   const std::function<const void*(int peer)>& source_of, TensorView mine,
                   TensorView out) {
  const auto values_of = [&](int peer) {
    return ConstTensorView{source_of(peer), mine.dtype, mine.num_elements};
  };
  if (receive.combine == plan::Combine::copy) {
    kernels::backend(DeviceType::cpu)
        .copy(reduction.stream, {values_of(receive.from_ranks[0]), out});
    return;
  }
  thread_local std::vector<ConstTensorView> sources;
  sources.clear();
  bool has_mine = false;
  for (const int from : receive.from_ranks) {
    if (!has_mine && from > rank) {
      sources.push_back(mine);
      has_mine = true;
    }
    sources.push_back(values_of(from));
  }
  if (!has_mine) sources.push_back(mine);
  reduce(reduction.stream, {sources, 1.0, out, reduction.op});
}

void multiply(runtime::Stream& stream, double factor, TensorView values) {
  const ConstTensorView source = values;
  if (factor != 1) reduce(stream, {std::span(&source, 1), factor, values});
}

double factor_of(ReduceOp op, int world_size) {
  return op == ReduceOp::average ? 1.0 / world_size : 1.0;
}

}  // namespace lockstep::comm

#include "schedule.h"

#include <vector>

namespace lab {

void schedule(Gpu& gpu) {
  // SOLUTION begin: schedule: load shards; gather each layer while the one before it computes, free
  // it after use; in backward also reduce_scatter, free the gradient, update the shard
  const int last = gpu.num_layers() - 1;
  const int micro_batch = gpu.rank();
  for (int layer = 0; layer <= last; ++layer) gpu.load(layer, Keep::shard);
  Work gather = gpu.all_gather(0);
  for (int layer = 0; layer <= last; ++layer) {
    gpu.wait(gather);
    if (layer < last) gather = gpu.all_gather(layer + 1);
    gpu.forward(layer, micro_batch);
    if (layer < last) gpu.free_parameters(layer);  // backward begins with the last one
  }
  const auto finish = [&](int layer, Work reduce) {
    gpu.wait(reduce);
    gpu.free_gradient(layer);
    gpu.update(layer);
  };
  Work behind;  // the reduce-scatter of layer + 1
  for (int layer = last; layer >= 0; --layer) {
    if (layer < last) gpu.wait(gather);
    if (layer > 0) gather = gpu.all_gather(layer - 1);
    gpu.backward(layer, micro_batch);
    gpu.free_parameters(layer);
    const Work reduce = gpu.reduce_scatter(layer);
    if (layer < last) finish(layer + 1, behind);
    behind = reduce;
  }
  finish(0, behind);
  // SOLUTION end
}

}  // namespace lab

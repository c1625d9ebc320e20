#include "schedule.h"

#include <vector>

namespace lab {

void schedule(Gpu& gpu) {
  // SOLUTION begin: schedule: load with Keep::sharded_state; reduce_scatter each gradient beside
  // backward and free it, update the shard, all_gather the parameters
  const int last = gpu.num_layers() - 1;
  for (int layer = 0; layer <= last; ++layer) gpu.load(layer, Keep::sharded_state);
  for (int layer = 0; layer <= last; ++layer) gpu.forward(layer, gpu.rank());
  std::vector<Work> gathers;
  const auto finish = [&](int layer, Work reduce) {
    gpu.wait(reduce);
    gpu.free_gradient(layer);
    gpu.update(layer);
    gathers.push_back(gpu.all_gather(layer));
  };
  Work behind;  // the reduce-scatter of layer + 1
  for (int layer = last; layer >= 0; --layer) {
    gpu.backward(layer, gpu.rank());
    const Work reduce = gpu.reduce_scatter(layer);
    if (layer < last) finish(layer + 1, behind);
    behind = reduce;
  }
  finish(0, behind);
  for (const Work gather : gathers) gpu.wait(gather);
  // SOLUTION end
}

}  // namespace lab

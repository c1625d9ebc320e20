#include "schedule.h"

#include <vector>

namespace lab {

void schedule(Gpu& gpu) {
  // SOLUTION begin: schedule: run the own micro-batches one after the other, and all_reduce each
  // layer once, beside the last one's backward
  const int last = gpu.num_layers() - 1;
  const int num_own = gpu.num_micro_batches() / gpu.world_size();
  std::vector<Work> works(gpu.num_layers());
  for (int layer = 0; layer <= last; ++layer) gpu.load(layer);
  for (int i = 0; i < num_own; ++i) {
    const int micro_batch = gpu.rank() * num_own + i;
    for (int layer = 0; layer <= last; ++layer) gpu.forward(layer, micro_batch);
    for (int layer = last; layer >= 0; --layer) {
      gpu.backward(layer, micro_batch);
      if (i + 1 == num_own) works[layer] = gpu.all_reduce(layer);
    }
  }
  for (int layer = last; layer >= 0; --layer) {
    gpu.wait(works[layer]);
    gpu.update(layer);
  }
  // SOLUTION end
}

}  // namespace lab

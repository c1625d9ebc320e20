#include "schedule.h"

namespace lab {

void schedule(Gpu& gpu) {
  // SOLUTION begin: schedule: load the stage's layers; all micro-batches forward, then all back;
  // receive before a stage's first layer, send after its last one
  const int for_each = gpu.num_layers() / gpu.world_size();
  const int first = gpu.rank() * for_each;
  const int last = first + for_each - 1;
  for (int layer = first; layer <= last; ++layer) gpu.load(layer);
  for (int m = 0; m < gpu.num_micro_batches(); ++m) {
    if (first > 0) gpu.receive_activation(first, m, gpu.rank() - 1);
    for (int layer = first; layer <= last; ++layer) gpu.forward(layer, m);
    if (last + 1 < gpu.num_layers()) gpu.send_activation(last + 1, m, gpu.rank() + 1);
  }
  for (int m = 0; m < gpu.num_micro_batches(); ++m) {
    if (last + 1 < gpu.num_layers()) gpu.receive_gradient(last + 1, m, gpu.rank() + 1);
    for (int layer = last; layer >= first; --layer) gpu.backward(layer, m);
    if (first > 0) gpu.send_gradient(first, m, gpu.rank() - 1);
  }
  for (int layer = first; layer <= last; ++layer) gpu.update(layer);
  // SOLUTION end
}

}  // namespace lab

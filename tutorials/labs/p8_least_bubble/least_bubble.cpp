#include "schedule.h"

#include <algorithm>

namespace lab {

void schedule(Gpu& gpu) {
  // SOLUTION begin: schedule: give each GPU several layers that are not neighbours, so that a
  // micro-batch passes every GPU several times
  const int p = gpu.world_size();
  const int num_chunks = gpu.num_layers() / p;  // layer = chunk * p + rank
  const int total = num_chunks * gpu.num_micro_batches();
  const int before = (gpu.rank() + p - 1) % p;
  const int behind = (gpu.rank() + 1) % p;
  for (int chunk = 0; chunk < num_chunks; ++chunk) gpu.load(chunk * p + gpu.rank());
  // p micro-batches go through chunk 0, the same ones through chunk 1, ...; then the next p.
  const auto chunk_of = [&](int k) { return k / p % num_chunks; };
  const auto micro_batch_of = [&](int k) { return k / (p * num_chunks) * p + k % p; };
  const auto forward = [&](int k) {
    const int layer = chunk_of(k) * p + gpu.rank();
    const int m = micro_batch_of(k);
    if (layer > 0) gpu.receive_activation(layer, m, before);
    gpu.forward(layer, m);
    if (layer + 1 < gpu.num_layers()) gpu.send_activation(layer + 1, m, behind);
  };
  const auto backward = [&](int k) {
    const int layer = (num_chunks - 1 - chunk_of(k)) * p + gpu.rank();
    const int m = micro_batch_of(k);
    if (layer + 1 < gpu.num_layers()) gpu.receive_gradient(layer + 1, m, behind);
    gpu.backward(layer, m);
    if (layer > 0) gpu.send_gradient(layer, m, before);
    if (m + 1 == gpu.num_micro_batches()) gpu.update(layer);
  };
  const int num_ahead = std::min(total, 2 * (p - 1 - gpu.rank()) + (num_chunks - 1) * p);
  for (int k = 0; k < num_ahead; ++k) forward(k);
  for (int k = 0; k < total; ++k) {
    if (k + num_ahead < total) forward(k + num_ahead);
    backward(k);
  }
  // SOLUTION end
}

}  // namespace lab

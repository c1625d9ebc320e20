// A module's buffers side by side, so that they travel together: with a message for each, ResNet-18
// would pay 60 latencies in every step.
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "engine/nn/module.h"

namespace lockstep::parallel {

class PackedBuffers {
 public:
  // Returns the memories in which the module's buffers lie: one for each dtype and device. Buffers
  // that lie elsewhere are moved there first.
  const std::vector<Tensor>& pack(nn::Module& module);
  // Counts a change of every buffer, after one of the memories.
  void bump_versions() const;
  // Every rank's buffers become the source's, by a message for each memory.
  void broadcast(nn::Module& module, comm::Communicator& communicator, int source);

 private:
  std::vector<Tensor> memories_;
  std::vector<Tensor> buffers_;  // parts of them
};

}  // namespace lockstep::parallel

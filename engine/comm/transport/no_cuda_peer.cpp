// What stands for transport/cuda_peer in a build without CUDA.
#include "engine/comm/transport/cuda_peer/cuda_peer.h"
#include "engine/comm/transport/cuda_peer/flag_all_reduce.h"
#include "engine/core/error.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::comm::cuda_peer {

void reduce_to_all(runtime::Stream&, ReduceOp, double, std::span<const ConstTensorView>,
                   std::span<const TensorView>) {
  fail(ErrorCode::Device, "reduce", "{}", runtime::no_gpu_reason());
}

bool FlagAllReduce::serves(std::span<runtime::Stream* const>) const {
  return false;
}

void FlagAllReduce::enqueue(plan::AllReducePlan, ReduceOp, double,
                            std::span<runtime::Stream* const>, std::span<const TensorView>) {
  fail(ErrorCode::Device, "all_reduce", "{}", runtime::no_gpu_reason());
}

}  // namespace lockstep::comm::cuda_peer

// The kernel of this folder in a build without CUDA.
#include "engine/comm/reduce_to_all.h"
#include "engine/core/error.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::comm {

void reduce_to_all(runtime::Stream&, ReduceOp, double, std::span<const ConstTensorView>,
                   std::span<const TensorView>) {
  fail(ErrorCode::Device, "reduce", "{}", runtime::no_gpu_reason());
}

}  // namespace lockstep::comm

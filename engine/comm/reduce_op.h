// The operation of a reduction. Kernels include it: nvcc cannot read the formatter that
// communicator.h brings with it.
#pragma once

namespace lockstep::comm {

// average: every contribution is multiplied by 1/world_size as it enters, then summed. Floating
// point only.
enum class ReduceOp { sum, average, product, min, max };

}  // namespace lockstep::comm

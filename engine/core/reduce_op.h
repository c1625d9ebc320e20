// The operation of a reduction.
#pragma once

namespace lockstep {

// average: every contribution is multiplied by 1/world_size as it enters, then summed. Floating
// point only.
enum class ReduceOp { sum, average, product, min, max };

}  // namespace lockstep

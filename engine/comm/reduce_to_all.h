// The interface to the kernel that reduces memory of several CUDA devices, without CUDA's headers.
// A build without CUDA links no_reduce_to_all.cpp in its place.
#pragma once

#include <cstddef>
#include <span>

#include "engine/comm/reduce_op.h"
#include "engine/core/views.h"
#include "engine/runtime/stream.h"

namespace lockstep::comm {

inline constexpr std::size_t kMaxReducedRanks = 64;

// Every output = sources[0] op sources[1] op ..., in one launch: each element is read once from
// every source and written once to every output. Order, factor and bits are those of
// reduce_in_order (engine/comm/reduce.h).
// Memory:  the stream's GPU must reach all of it: its own, or that of a GPU to which it has peer
//          access (runtime::has_peer_access). An output may be one of the sources.
// Types:   float32, float64, int32, int64 (factor 1), and bfloat16, float16, which are added in
//          float32 and rounded once.
// REQUIRES: 1 to kMaxReducedRanks sources and outputs, all with the same dtype and number of
// elements.
void reduce_to_all(runtime::Stream& stream, ReduceOp op, double factor,
                   std::span<const ConstTensorView> sources, std::span<const TensorView> outputs);

}  // namespace lockstep::comm
